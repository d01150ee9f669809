"""Labelled texts for the detectors: made from templates, the same on every run, none of them taken from elsewhere.

Values are put together from parts, so that no scanner takes them for keys that leaked.
"""

import random
import string
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

SEED = 20_240_817


class Case(NamedTuple):
    """A text, the value in it that must be found whole, and the family it is counted in."""

    family: str
    text: str
    value: str


# ── the lists ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def _rows(section: str) -> list[list[str]]:
    """Return the rows of a section of `labelled_texts.txt`, as columns."""
    _, _, after = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").partition(f"[{section}]\n")
    return [line.split("\t") for line in after.partition("\n[")[0].splitlines() if line and not line.startswith("#")]


def _words(section: str) -> tuple[str, ...]:
    return tuple(row[0] for row in _rows(section))


# ── random values ─────────────────────────────────────────────────────────────────────────────────────────────────────

_ALPHABETS = {
    "a": string.ascii_letters + string.digits,
    "l": string.ascii_lowercase + string.digits,
    "U": string.ascii_uppercase + string.digits,
    "B": string.ascii_uppercase + "234567",
    "h": "0123456789abcdef",
    "d": string.digits,
    "u": string.ascii_letters + string.digits + "_-",
    "b": string.ascii_letters + string.digits + "+/",
    "L": string.ascii_letters,
    "V": string.ascii_uppercase,
    "K": string.digits + "K",
}


def drawn(form: str, chance: random.Random) -> str:
    """Return a value of a form: `{a36}` is 36 letters and figures, `{h8}` eight hexadecimal figures, and so on."""
    parts: list[str] = []
    for literal, name, _, _ in string.Formatter().parse(form):
        parts.append(literal)
        if name == "uuid":
            parts.append("-".join(_of("h", size, chance) for size in (8, 4, 4, 4, 12)))
        elif name:
            parts.append(_of(name[0], int(name[1:]), chance))
    return "".join(parts)


def _of(alphabet: str, size: int, chance: random.Random) -> str:
    letters = _ALPHABETS[alphabet]
    # No value ends with a sign that a sentence could end with.
    return "".join(chance.choices(letters, k=size - 1)) + chance.choice([each for each in letters if each.isalnum()])


# ── keys of vendors ───────────────────────────────────────────────────────────────────────────────────────────────────

_KEY_SENTENCES = _words("key sentences")


def vendor_keys(rounds: int = 3) -> Iterator[Case]:
    """Return keys in the forms of well-known vendors, in sentences without a word for keys."""
    chance = random.Random(SEED)
    for vendor, form in _rows("vendors"):
        for place in range(rounds):
            value = drawn(form, chance)
            yield Case(f"vendor: {vendor}", _KEY_SENTENCES[place % len(_KEY_SENTENCES)].format(value), value)


# ── named values ──────────────────────────────────────────────────────────────────────────────────────────────────────

_KEY_NAMES = _words("key names")
_PASSWORD_NAMES = _words("password names")
_KEY_VALUES = ("{a24}", "{h32}", "{h40}", "{u36}", "{a32}", "{uuid}", "{b40}=", "{l20}")
_PASSWORD_VALUES = ("{l6}7", "{L5}{d3}", "P{l7}!9", "{a12}", "{L4}#{d4}", "{a4}-{a4}-{a4}1", "{L3}$tr0ng{d2}")
_FORMS: dict[str, str] = {
    "env": "{name}={value}",
    "env, quoted": '{name}="{value}"',
    "YAML": "database:\n  {name}: {value}\n  port: 1",
    "YAML, quoted": "  {name}: '{value}'",
    "JSON": '{{"user": "ada", "{name}": "{value}", "ssl": true}}',
    "JSON in JSON": '{{"body": "{{\\"{name}\\": \\"{value}\\"}}"}}',
    "TOML": '[service]\n{name} = "{value}"',
    "ini": "[service]\n{name} = {value}\n",
    "shell": "export {name}='{value}' && ./run",
    "header": "X-{name}: {value}\r\nAccept: */*",
    "URL": "GET https://api.example.org/v1/items?limit=5&{name}={value}&page=2",
    "Python": "self.{name} = '{value}'",
    "Python, typed": '{name}: str = "{value}"',
    "JavaScript": "const config = {{ {name}: `{value}` }};",
    "PHP": "$config['{name}'] = '{value}';",
    "Ruby": ":{name} => '{value}',",
    "Go": '{name} := "{value}"',
    "define": "define('{name}', '{value}');",
    "properties": "spring.service.{name}={value}",
    "XML": "<{name}>{value}</{name}>",
    "XML, attribute": '<add key="{name}" value="{value}"/>',
    "command": "./deploy --{name} {value} --verbose",
    "command, joined": "./deploy --{name}={value}",
    "table": "| {name} | {value} |",
}


def named_values(rounds: int = 12) -> Iterator[Case]:
    """Return values that a name says are secret, in the forms of files, code and commands."""
    chance = random.Random(SEED + 1)
    for form, template in _FORMS.items():
        for _ in range(rounds):
            for names, values in ((_KEY_NAMES, _KEY_VALUES), (_PASSWORD_NAMES, _PASSWORD_VALUES)):
                value = drawn(chance.choice(values), chance)
                if form in {"URL"} and "/" in value:
                    value = quote(value, safe="")
                text = template.format(name=chance.choice(names), value=value)
                yield Case(f"name=value: {form}", text, value)
    yield from _files(chance, rounds)


def _files(chance: random.Random, rounds: int) -> Iterator[Case]:
    for _ in range(rounds):
        word, key = drawn("{L5}{d3}", chance), drawn("{a24}", chance)
        yield Case("name=value: .netrc", f"machine api.example.org\n  login ada\n  password {word}\n", word)
        yield Case("name=value: .netrc", f"machine host login ada password {word}", word)
        yield Case("name=value: .git-credentials", f"https://ada:{key}@git.example.org", f"ada:{key}")
        yield Case("name=value: .git-credentials", f"https://{key}1x9@git.example.org", f"{key}1x9")
        yield Case("name=value: .pgpass", f"db.example.org:5432:shop:ada:{word}", word)
        basic = _base64(f"ada:{word}")
        yield Case("name=value: docker", f'{{"auths": {{"https://r.example.org": {{"auth": "{basic}"}}}}}}', basic)
        yield Case("name=value: .npmrc", f"//r.example.org/:_authToken={key}", key)
        yield Case("name=value: wp-config", f"define( 'DB_PASSWORD', '{word}' );", word)
        yield Case("name=value: wp-config", f"define('AUTH_KEY',         '{key}');", key)
        yield Case("name=value: curl", f"curl -u ada:{word} https://example.org", word)
        yield Case("name=value: header", f"Authorization: Bearer {key}", key)
        yield Case("name=value: header", f"Authorization: Basic {basic}", basic)
        yield Case("name=value: SQL", f"CREATE USER ada IDENTIFIED BY '{word}';", word)
        yield Case("name=value: cookie", f"Cookie: theme=dark; sessionid={key}; lang=en", key)
        yield Case("name=value: cookie", f"Set-Cookie: PHPSESSID={key}; Path=/; HttpOnly", key)


def _base64(text: str) -> str:
    from base64 import b64encode

    return b64encode(text.encode()).decode()


# ── prose ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_KEY_PROSE = _words("key prose")
_PASSWORD_PROSE = _words("password prose")
_SPOKEN_KEYS = ("{a24}", "{h32}", "{a32}", "{uuid}", "{a40}", "{u28}")
_SPOKEN_PASSWORDS = ("{L6}{d2}", "{L4}!{d3}{L2}", "{a10}7x", "{l5}#{d2}{L3}", "Summer{d4}!", "{L3}{d2}{L3}{d2}")


def prose(rounds: int = 8) -> Iterator[Case]:
    """Return secrets in sentences that speak of them."""
    chance = random.Random(SEED + 2)
    for family, sentences, values in (
        ("prose: key", _KEY_PROSE, _SPOKEN_KEYS),
        ("prose: password", _PASSWORD_PROSE, _SPOKEN_PASSWORDS),
    ):
        for sentence in sentences:
            for _ in range(rounds):
                value = drawn(chance.choice(values), chance)
                yield Case(family, sentence.format(value), value)


# ── numbers of states and banks ───────────────────────────────────────────────────────────────────────────────────────


class Number(NamedTuple):
    """A number of a country: how one is made, how it is written, and the sentences it stands in."""

    country: str
    module: str
    form: str
    written: Sequence[str]
    sentences: Sequence[str]

    def draw(self, chance: random.Random) -> str:
        begins, _, rest = self.form[1:].partition(">") if self.form.startswith("<") else ("", "", self.form)
        begin = chance.choice(begins.split(",")) if begins else ""
        if rest.startswith("@"):
            _, date, rest = rest.split("@")
            begin += _date(chance, date)
        return begin + drawn(rest, chance)


def _date(chance: random.Random, form: str) -> str:
    year, month, day = chance.randint(1950, 1999), chance.randint(1, 12), chance.randint(1, 28)
    return form.format(y=year % 100, Y=year, m=month, d=day)


def _grouped(number: str, groups: str) -> str:
    """Return *number* in the places of the # of *groups*."""
    chars = iter(number)
    return "".join(next(chars) if char == "#" else char for char in groups)


@cache
def _is_valid(module: str) -> Callable[[str], bool]:
    loaded: Any = import_module(f"stdnum.{module}")
    return loaded.is_valid


def _valid(number: Number, chance: random.Random) -> str:
    while True:
        value = number.draw(chance)
        if number.module == "-" or _is_valid(number.module)(value):
            return value


# Names as Italy writes them into the code, so that its own check is right.
_ITALIAN = ("RSSMRA", "BNCLCU", "VRDGPP", "FRRNNA", "CLMMTT")


def _codice_fiscale(chance: random.Random) -> str:
    from stdnum.it import codicefiscale

    code: Any = codicefiscale
    begin = f"{chance.choice(_ITALIAN)}{chance.randint(50, 99)}{chance.choice('ABCDEHLMPRST')}"
    begin += f"{chance.randint(1, 28):02}H501"
    return begin + code.calc_check_digit(begin)


def national_numbers(rounds: int = 4) -> Iterator[Case]:
    """Return numbers with the right check digits, in sentences of their countries."""
    chance = random.Random(SEED + 3)
    for country, module, form, shapes, sentences in _rows("numbers"):
        number = Number(country, module, form, shapes.split(" | "), sentences.split(" | "))
        for written in number.written:
            for sentence in number.sentences:
                for _ in range(rounds):
                    digits = _valid(number, chance)
                    value = _grouped(digits, written)
                    yield Case(f"national: {number.country}", sentence.format(value), value)
    for sentence in ("Codice fiscale: {}", "il cliente {} ha pagato", "il mio codice fiscale è {}", "C.F. {}"):
        for _ in range(rounds):
            value = _codice_fiscale(chance)
            yield Case("national: IT", sentence.format(value), value)


def phone_numbers(rounds: int = 4) -> Iterator[Case]:
    """Return telephone numbers after words of several languages, in their inflected forms."""
    chance = random.Random(SEED + 4)
    for country, forms, sentences in _rows("phones"):
        for form in forms.split(" | "):
            for sentence in sentences.split(" | "):
                for _ in range(rounds):
                    value = "".join(chance.choice("23456789") if char == "#" else char for char in form)
                    yield Case(f"phone: {country}", sentence.format(value), value)


def papers(rounds: int = 6) -> Iterator[Case]:
    """Return numbers of passports, licences and cards after words of several languages."""
    chance = random.Random(SEED + 5)
    for sentence, form in _rows("papers"):
        for _ in range(rounds):
            value = drawn(form, chance)
            text = sentence.format(value)
            yield Case("papers", text, value)


# ── what is hidden ────────────────────────────────────────────────────────────────────────────────────────────────────

_PLAIN = (
    "ada.king@example.org",
    "grace@mail.example.co.uk",
    "4111 1111 1111 1111",
    "DE89370400440532013000",
    "+41 44 668 18 00",
    "460-89-9847",
    "378282246310005",
)


def hidden_values() -> Iterator[Case]:
    """Return values that are escaped for a URL, for HTML or for JSON, and cards whose groups are listed."""
    for plain in _PLAIN:
        for how, written in {
            "URL": quote(plain, safe=""),
            "URL, all": "".join(f"%{ord(char):02X}" for char in plain),
            "URL, twice": quote(quote(plain, safe=""), safe=""),
            "HTML": plain.replace("@", "&#64;").replace(" ", "&nbsp;").replace("-", "&#45;"),
            "HTML, all": "".join(f"&#{ord(char)};" for char in plain),
            "HTML, hex": "".join(f"&#x{ord(char):x};" for char in plain),
            "HTML, twice": escape("".join(f"&#{ord(char)};" for char in plain)),
            "HTML, named": plain.replace("@", "&commat;").replace(".", "&period;"),
            "JSON": plain.replace("4", "\\u0034").replace("@", "\\u0040").replace(" ", "\\u0020"),
            "JSON, all": "".join(f"\\u{ord(char):04x}" for char in plain),
            "code": "".join(f"\\x{ord(char):02x}" for char in plain),
        }.items():
            for text in ("see {} for more", '{{"note": "{}"}}', "https://example.org/?q={}&x=1"):
                yield Case(f"hidden: {how}", text.format(written), written)
    for card in (
        "4111,1111,1111,1111",
        "5555, 5555, 5555, 4444",
        "3782,822463,10005",
        "4111;1111;1111;1111",
        "4111|1111|1111|1111",
    ):
        yield Case("hidden: card in a list", f"card {card}, thanks", card)


# ── what is harmless ──────────────────────────────────────────────────────────────────────────────────────────────────


# Polish texts with numbers that are nobody's, also beside words about telephones.
_POLISH_PAPERS = (
    "faktura nr|numer zamówienia|nr przesyłki|numer sprawy|sygn. akt|umowa nr|numer polisy|zgłoszenie nr|numer klienta|"
    "nr seryjny|numer partii|kod produktu|numer rezerwacji|reklamacja nr|paragon nr|numer wniosku"
)
_POLISH_FORMS = ("{} {{d9}}", "Proszę o kontakt, {}: {{d3}}-{{d3}}-{{d3}}", "Dzwoniłem, {} {{d3}}/03/2024")
_HARMLESS_POLISH = (
    *(form.format(paper) for form in _POLISH_FORMS for paper in _POLISH_PAPERS.split("|")),
    "https://example.com/kontakt/2024-03-15/10:{d2}",
    "https://tel.example.com/2024/03/15/artykul",
    "Telefon kosztuje 1 {d3},{d2} zł",
    "Zadzwoniłem 2024-03-15 o 14:30",
    "Kontakt w sprawie {d6}/2024",
    "Telefon z systemem 10.0.{d5}.{d4}",
    "Maska 255.255.255.0, sieć 192.168.{d2}.0/24, DNS 8.8.8.8",
    "52.{d6} 21.{d6}",
    "FV {d3}/03/2024 z dnia 15.03.2024",
)


def harmless(rounds: int = 5) -> Iterator[str]:
    """Return texts in which nothing is personal or secret: invoices, orders, versions, sums, hashes."""
    chance = random.Random(SEED + 6)
    for form in (*_words("harmless"), *_HARMLESS_POLISH):
        for _ in range(rounds):
            yield drawn(form, chance)


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    "keys of vendors": vendor_keys,
    "named values": named_values,
    "prose": prose,
    "national numbers": national_numbers,
    "telephone numbers": phone_numbers,
    "papers": papers,
    "hidden values": hidden_values,
}


@cache
def cases(family: str) -> tuple[Case, ...]:
    """Return the labelled texts of a family."""
    return tuple(FAMILIES[family]())


def all_cases() -> Iterator[Case]:
    """Return every labelled text."""
    for family in FAMILIES:
        yield from cases(family)
