"""`remit worker`, and what commands ask the other hubs of a team; the plugin of the bus names them."""
