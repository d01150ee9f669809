"""The relay server: it forwards encrypted messages between devices and cannot read them."""
