"""One delegation in process, with every guard and record, against a bare task with a time-out."""
