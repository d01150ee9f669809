"""What a team file says of devices, and the device of a team."""
