"""Identifies what a number is by the words around it."""

import re
from collections.abc import Sequence

from remit_redaction.normal import spelled
from remit_redaction.tables import words

# Far enough for `my number, since the move, is …`, and too short to reach the sentence before the last.
_BEFORE = 48
_AFTER = 14

_CAMEL = re.compile(rb"(?<=[a-z])(?=[A-Z])")


def _of_words(stems: Sequence[str]) -> re.Pattern[bytes]:
    """Return the pattern of *stems* in normalised form; a word without `*` must end at a word boundary."""
    whole = b"|".join(spelled(word).replace(b".", rb"\.") for word in stems if not word.endswith("*"))
    open_ended = b"|".join(spelled(word[:-1]) for word in stems if word.endswith("*"))
    return re.compile(rb"phone|(?<![a-z])(?:(?:%b)(?![a-z])|(?:%b))" % (whole, open_ended))


PHONE = _of_words(words("telephone"))
# Text after a number is its label, and not a sentence about calling.
PHONE_AFTER = re.compile(
    rb"[ \-(,:]{1,3}(?:phone|tel|mobile|mobil|cell|fax|office|desk|home|work|landline|direct)(?![a-z])"
)
CARD = re.compile(
    rb"card|visa|american express|(?<![a-z])(?:credit|debit|amex|maestro|charged?|paid|pay|cvv|cvc|exp|expires|expiry|"
    rb"cc|ccn|ccnum|ccnumber|pan|karte|kreditkarte|tarjeta|carte|carta)(?![a-z0-9])"
)
SSN = re.compile(
    rb"(?<![a-z])ssn|social[ _-]?sec|(?<![a-z])ss ?#|(?<![a-z])tax(?:payer)?[ _-]?id|(?<![a-z])tin(?![a-z])"
)
ITIN = re.compile(rb"(?<![a-z])itin(?![a-z])|individual taxpayer")
SIN = re.compile(rb"(?<![a-z])sin(?![a-z])|social[ _-]?insurance|assurance sociale|(?<![a-z])nas(?![a-z])")
NHS = re.compile(rb"(?<![a-z])nhs(?![a-z])|national health")

_POLISH_OTHER = re.compile(
    rb"(?<![a-z])(?:%b)\.?(?: [a-z]+ego| akt| vat)?(?: (?:nr|numer))?[ .:#]{0,3}$"
    % b"|".join(spelled(noun.rstrip("*")) + b"[a-z]*" * noun.endswith("*") for noun in words("polish nouns"))
)
# The end of a phrase: an abbreviation such as `tel.` goes on.
_PHRASE_END = re.compile(rb"(?:[,;:!?]|(?<=[a-z]{4})\.) ")

# A word that says that the number right after it is something else.
_OTHER = re.compile(
    rb"(?:(?<![a-z])(?:order|orders|invoice|inv|ticket|reference|ref|tracking|shipment|parcel|account|acct|a/c|id|ids|uid|"
    rb"case|isbn|issn|doi|ean|upc|gtin|sku|asin|item|part|serial|imei|model|batch|lot|po|vat|version|ver|v|build|release|"
    rb"section|chapter|timestamp|epoch|time|unix|date|year|amount|total|sum|price|cost|balance|revenue|population|count|"
    rb"size|bytes|hash|commit|sha|md5|uuid|guid|zip|postcode|coordinates?|lat|lon|lng|latitude|longitude|seed|port|"
    rb"bug|issue|pr|routing|sort code|iban|bic|swift|license|licence|passport|receipt|transaction|txn|trx|booking|"
    rb"customer|member|policy|claim|contract|employee|student|user|article|waybill|consignment|quote|quotation|"
    rb"purchase order|delivery|barcode|docket|voucher|coupon|lottery|score|checksum|offset|address 0x|"
    rb"faktur[aeyi]?|fvat?|zamowieni[ea]|przesylk[ai]|rechnung|rechnungsnummer|bestellung|bestellnummer|auftrag|kundennummer|"
    rb"lieferung|sendungsnummer|aktenzeichen|vorgang|factura|pedido|albaran|expediente|fattura|ordine|spedizione|pratica|"
    rb"facture|commande|colis|dossier|nota fiscal|encomenda|factuur|bestelling|ordernummer|"
    rb"faktura(?:nummer)?|objednavka|"
    rb"fatura|siparis)|\$|\xa3|usd|eur|gbp|chf|#)"
    rb"[ _-]?(?:no|nr|num|number|numer|numero|id|ids|code|ref|n\x80)?[\"'\]]?[ .]{0,2}(?:is|was|:|=|#|"
    rb"->)?[ #:=\"'\[(]{0,3}"
    # Letters and a year at the start of such a number: `INV-2024-`, `FV/2024/`.
    rb"(?:[a-z]{1,5}[-/]{1,2})?(?:(?:19|20)\d\d[-/])?$"
)
_MONEY = re.compile(rb"[ ]?(?:\$|%|usd|eur|euros?|gbp|chf|dollars?|pounds|yen|bytes|ms|km|kg)(?![a-z])")
_VERSION = re.compile(
    rb"(?:(?<![a-z])(?:v|ver|vers|version|versions|versie|wersja|wersji|versione|versao|release|rel|build|firmware|driver|"
    rb"update|upgrade|upgraded|downgrade|patch|section|sect|chapter|clause|paragraph|rozdzial|kapitel|abschnitt|capitulo|"
    rb"capitolo|punkt|pkt|figure|table|appendix|annex|python|node|chrome|firefox|safari|edge|kernel|android|ios|windows|"
    rb"office|dll|oid|openssl|java|jdk|from version|to version|assemblyversion|fileversion)|/|\x80)"
    rb"[\"']?[ ]?(?:to|from|is|was|no\.?|number)?[ ]?[:=]?[ \"'v.(]{0,3}$"
)
# Words about machines and networks.
_NETWORK = re.compile(
    rb"(?<![a-z])(?:ip|ips|ipv4|addr|address|adres|adresse|direccion|indirizzo|endereco|host|hosts|hostname|server|node|"
    rb"gateway|router|dns|subnet|netmask|cidr|ping|ssh|client|peer|remote|source|destination|src|dst|from|proxy|listen|bind|"
    rb"connect|connected|network|lan|wan|vpn|nat|firewall|inet|nameserver|resolver|endpoint|request)(?![a-z])"
)


def before(data: bytes, start: int) -> bytes:
    """Return the words before *start* in lower case, with the parts of `camelCase` separated."""
    return _CAMEL.sub(b" ", data[max(0, start - _BEFORE) : start]).lower()


def after(data: bytes, end: int) -> bytes:
    """Return the words after *end* on the same line, in lower case."""
    return data[end : end + _AFTER].partition(b"\n")[0].lower()


def says_other(words: bytes) -> bool:
    """Return whether the last of *words* names something else with a number: an order, an account, a price."""
    if _OTHER.search(words) is not None:
        return True
    if _POLISH_OTHER.search(words) is None:
        return False
    # In Polish, whose telephone it is follows the word: `telefon klienta 600 …`.
    return PHONE.search(_PHRASE_END.split(words.rstrip(b" :"))[-1]) is None


def says_money(words: bytes) -> bool:
    """Return whether *words*, which follow a number, are its unit of money."""
    return _MONEY.match(words) is not None


def says_version(words: bytes) -> bool:
    """Return whether *words* introduce a version number and not an address."""
    return _VERSION.search(words) is not None


def says_network(words: bytes) -> bool:
    """Return whether *words* are about machines and their addresses."""
    return _NETWORK.search(words) is not None
