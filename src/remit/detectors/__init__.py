"""What is personal or secret in a text: patterns, check digits, and the words around them."""
