"""The words that users say and read around their requests, by language, and what a text means by them alone."""
