"""What the words around a number say it is."""

import re

# Far enough for `my number, since the move, is …`, and too near for the sentence before the last.
_BEFORE = 48
_AFTER = 14

_CAMEL = re.compile(rb"(?<=[a-z])(?=[A-Z])")

# \xff stands for any letter beyond ASCII: téléphone, teléfono, móvil, numéro.
PHONE = re.compile(
    rb"phone|(?<![a-z])(?:tel|tele?fono?|telefoon|tel\xfffono|tlf|tfn|mobile?s?|m\xffvil|mobiel|mobitel|handy|cell|"
    rb"cellular|celular|cellulare|portable|kom\xffrka|fax|sms|whats ?app|viber|call|calls|called|calling|callback|"
    rb"dial|ring|reach|contact|hotline|helpline|messages? (?:to|at|on)|text me|texted|registered|answering|office|desk|"
    rb"landline|voicemail|extension|my number|phone ?numbers?|msisdn|rufnummer|anrufen|appel\w*|llam\w+|chiam\w+|"
    rb"telefonnummer)(?![a-z])"
)
# What is written after a number is its label, not a sentence that speaks of calling.
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

# A word that says the number right after it is something else.
_OTHER = re.compile(
    rb"(?:(?<![a-z])(?:order|orders|invoice|inv|ticket|reference|ref|tracking|shipment|parcel|account|acct|a/c|id|ids|uid|"
    rb"case|isbn|issn|doi|ean|upc|gtin|sku|asin|item|part|serial|imei|model|batch|lot|po|vat|version|ver|v|build|release|"
    rb"section|chapter|timestamp|epoch|time|unix|date|year|amount|total|sum|price|cost|balance|revenue|population|count|"
    rb"size|bytes|hash|commit|sha|md5|uuid|guid|zip|postcode|coordinates?|lat|lon|lng|latitude|longitude|seed|port|"
    rb"bug|issue|pr|routing|sort code|iban|bic|swift|license|licence|passport|receipt|transaction|txn|trx|booking|"
    rb"customer|member|policy|claim|contract|employee|student|user|article)|\$|\xa3|usd|eur|gbp|chf|#)"
    rb"[ _-]?(?:no|nr|num|number|id|ids|code|ref|n\xff)?[\"'\]]?[ .]?(?:is|was|:|=|#|->)?[ #:=\"'\[(]{0,3}$"
)
_MONEY = re.compile(rb"[ ]?(?:\$|%|usd|eur|euros?|gbp|chf|dollars?|pounds|yen|bytes|ms|km|kg)(?![a-z])")
_VERSION = re.compile(
    rb"(?:(?<![a-z])(?:v|ver|vers|version|release|build|firmware|section|chapter|python|node|chrome|oid)|/|\xa7)"
    rb"[\"']?[ ]?[:=]?[ \"'v.]{0,2}$"
)


def before(data: bytes, start: int) -> bytes:
    """Return the words before *start* in small letters, the parts of `camelCase` apart."""
    return _CAMEL.sub(b" ", data[max(0, start - _BEFORE) : start]).lower()


def after(data: bytes, end: int) -> bytes:
    """Return the words after *end* on the same line, in small letters."""
    return data[end : end + _AFTER].partition(b"\n")[0].lower()


def says_other(words: bytes) -> bool:
    """Whether the last of *words* names something else that has numbers: an order, an account, a price."""
    return _OTHER.search(words) is not None


def says_money(words: bytes) -> bool:
    """Whether *words*, which follow a number, are its unit."""
    return _MONEY.match(words) is not None


def says_version(words: bytes) -> bool:
    """Whether *words* lead up to a version, and not to an address."""
    return _VERSION.search(words) is not None
