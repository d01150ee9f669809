"""What two devices send each other inside the encryption."""
