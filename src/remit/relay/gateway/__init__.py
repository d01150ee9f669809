"""The relay server: it carries sealed messages between devices, and can read none of them."""
