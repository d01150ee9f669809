"""Labelled texts for the detectors: made from templates, the same on every run, none of them taken from elsewhere.

Values are put together from parts, so that no scanner takes them for keys that leaked.
"""

import random
import string
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from html import escape
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import quote

SEED = 20_240_817


class Case(NamedTuple):
    """A text, the value in it that must be found whole, and the family it is counted in."""

    family: str
    text: str
    value: str


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

# The forms as vendors and public scanners describe them, written down apart from the detectors' own table.
VENDOR_FORMS: dict[str, str] = {
    "1Password": "ops_" + "eyJ{b250}",
    "1Password secret key": "A3-{U6}-{U11}-{U5}-{U5}-{U5}",
    "Adafruit": "aio" + "_{a28}",
    "Adobe": "p8e" + "-{l32}",
    "age": "AGE-SECRET" + "-KEY-1{U58}",
    "Airtable": "pat{a14}" + ".{h64}",
    "Alchemy": "alcht" + "_{a30}",
    "Alibaba": "LT" + "AI{a20}",
    "AWS": "AK" + "IA{B16}",
    "AWS, temporary": "AS" + "IA{B16}",
    "Bedrock": "AB" + "SK{b120}",
    "Bedrock, short": "bedrock-api-key-" + "YmVkcm9jay5hbWF6b25hd3MuY29t{a80}",
    "Anthropic": "sk-ant-" + "api03-{u93}AA",
    "Anthropic admin": "sk-ant-" + "admin01-{u93}AA",
    "Apify": "apify_" + "api_{a36}",
    "Artifactory": "AK" + "Cp{a69}",
    "Artifactory reference": "cmVmd" + "Gtu{a56}",
    "Asana": "1/" + "{d16}:{h32}",
    "Atlassian": "ATATT3" + "xFfGF0{u170}={U8}",
    "Azure Entra": "{a3}8" + "Q~{a34}",
    "Azure storage": "AccountKey" + "={b86}==",
    "Bannerbear": "bb_" + "pr_{h30}",
    "Bitbucket app": "AT" + "BB{a32}",
    "Brevo": "xkeysib" + "-{h64}-{a16}",
    "Buildkite": "bkua" + "_{h40}",
    "Canva": "cnvca" + "{u43}",
    "Cerebras": "csk" + "-{l48}",
    "CircleCI": "CCIPAT" + "_{a22}_{h40}",
    "ClickHouse": "4b" + "1d{a38}",
    "ClickUp": "pk" + "_{d8}_{U32}",
    "Clojars": "CLOJARS" + "_{l60}",
    "Cloudflare": "cfut" + "_{a40}{h8}",
    "Cloudflare origin": "v1.0" + "-{h24}-{h146}",
    "Contentful": "CFPAT" + "-{u43}",
    "crates.io": "cio" + "{a32}",
    "Databricks": "dapi" + "{h32}",
    "Defined": "dnkey" + "-{a26}-{a52}",
    "Deno": "ddp" + "_{a36}",
    "DigitalOcean": "dop" + "_v1_{h64}",
    "DigitalOcean refresh": "dor" + "_v1_{h64}",
    "Discord bot": "MTk4" + "{a21}.{a6}.{a38}",
    "Docker Hub": "dckr" + "_pat_{u27}",
    "Doppler": "dp" + ".pt.{a43}",
    "Doppler service": "dp" + ".st.prd.{a43}",
    "Duffel": "duffel" + "_live_{a43}",
    "Dynatrace": "dt0" + "c01.{U24}.{U64}",
    "EasyPost": "EZ" + "AK{a54}",
    "ElevenLabs": "sk" + "_{h48}",
    "Facebook": "EAA" + "C{a160}",
    "Figma": "figd" + "_{u43}",
    "Fireworks": "fw" + "_{a24}",
    "Flutterwave": "FLWSECK" + "_TEST-{h32}-X",
    "Fly": "fo1" + "_{u43}",
    "Fly macaroon": "fm2" + "_{b160}",
    "Frame.io": "fio" + "-u-{u64}",
    "GitHub": "gh" + "p_{a36}",
    "GitHub app": "gh" + "s_{a36}",
    "GitHub fine-grained": "github" + "_pat_{a22}_{a59}",
    "GitLab": "gl" + "pat-{u20}",
    "GitLab deploy": "gl" + "dt-{u20}",
    "GitLab runner": "GR" + "1348941{u20}",
    "Google": "AI" + "za{u35}",
    "Google OAuth": "GOC" + "SPX-{u28}",
    "Google refresh": "1//0" + "{u60}",
    "Grafana Cloud": "gl" + "c_eyJ{b120}",
    "Grafana service": "gl" + "sa_{a32}_{h8}",
    "Groq": "gs" + "k_{a52}",
    "Harness": "pat" + ".{a22}.{h24}.{a20}",
    "Heroku": "HRKU" + "-AA{u58}",
    "HubSpot": "pat" + "-na1-{uuid}",
    "Hugging Face": "hf" + "_{L34}",
    "Infracost": "ico" + "-{a32}",
    "Intra42": "s-s4t2ud" + "-{h64}",
    "Klaviyo": "pk" + "_{h34}",
    "Langfuse": "sk-lf" + "-{uuid}",
    "LangSmith": "lsv2" + "_pt_{h32}_{h10}",
    "LaunchDarkly": "api" + "-{uuid}",
    "Linear": "lin" + "_api_{a40}",
    "Lob": "live" + "_{h35}",
    "Mailchimp": "{h32}" + "-us12",
    "Mailgun": "key" + "-{h32}",
    "Mapbox": "sk" + ".eyJ1{a80}.{a22}",
    "MaxMind": "{a6}_{a29}" + "_mmk",
    "Netlify": "nfp" + "_{a36}",
    "New Relic": "NRAK" + "-{U27}",
    "New Relic ingest": "NRII" + "-{u32}",
    "Notion": "ntn" + "_{d11}{a35}",
    "Notion, old": "secret" + "_{a43}",
    "npm": "npm" + "_{a36}",
    "NuGet": "oy2" + "{l43}",
    "NVIDIA": "nvapi" + "-{u64}",
    "Octopus": "API" + "-{U27}",
    "OpenAI": "sk-" + "proj-{u74}T3BlbkFJ{u74}",
    "OpenAI, old": "sk-" + "{a20}T3BlbkFJ{a20}",
    "OpenRouter": "sk-or" + "-v1-{h64}",
    "OpenShift": "sha256" + "~{u43}",
    "Perplexity": "pplx" + "-{a48}",
    "Pinecone": "pcsk" + "_{a6}_{a63}",
    "Plaid": "access" + "-production-{uuid}",
    "PlanetScale": "pscale" + "_tkn_{a43}",
    "PostHog": "phx" + "_{a43}",
    "Postman": "PMAK" + "-{h24}-{h34}",
    "Prefect": "pnu" + "_{a36}",
    "PubNub": "sub-c" + "-{uuid}",
    "Pulumi": "pul" + "-{h40}",
    "PyPI": "pypi" + "-AgEIcHlwaS5vcmc{u100}",
    "Ramp": "ramp" + "_sec_{a48}",
    "Razorpay": "rzp" + "_live_{a14}",
    "ReadMe": "rdme" + "_{l70}",
    "Replicate": "r8" + "_{u37}",
    "Resend": "re" + "_{a8}_{a24}",
    "Rootly": "rootly" + "_{h64}",
    "RubyGems": "rubygems" + "_{h48}",
    "Scalingo": "tk-us" + "-{u48}",
    "SendGrid": "SG" + ".{u22}.{u43}",
    "Sentry user": "sntryu" + "_{h64}",
    "Sentry organisation": "sntrys" + "_eyJpYXQiO{b120}_{b43}",
    "SettleMint": "sm" + "_pat_{a16}",
    "Shippo": "shippo" + "_live_{h40}",
    "Shopify": "shp" + "at_{h32}",
    "Shopify secret": "shp" + "ss_{h32}",
    "Slack bot": "xox" + "b-{d12}-{d12}-{a24}",
    "Slack user": "xox" + "p-{d12}-{d12}-{d12}-{h32}",
    "Slack app": "xapp" + "-1-A{U10}-{d13}-{h64}",
    "SonarQube": "squ" + "_{h40}",
    "Sourcegraph": "sgp" + "_{h16}_{h40}",
    "Sourcegraph Cody": "slk" + "_{h64}",
    "Square": "sq0" + "atp-{u22}",
    "Square access": "EA" + "AA{u60}",
    "Stripe": "sk" + "_live_{a24}",
    "Stripe restricted": "rk" + "_test_{a24}",
    "Stripe webhook": "wh" + "sec_{a32}",
    "Supabase": "sbp" + "_{h40}",
    "Supabase secret": "sb" + "_secret_{u31}",
    "Tailscale": "tskey" + "-auth-{a12}CNTRL-{a32}",
    "Tavily": "tvly" + "-dev-{a32}",
    "Telegram": "{d10}:" + "AA{u33}",
    "Tencent": "AK" + "ID{a32}",
    "Terraform": "{a14}." + "atlasv1.{u67}",
    "Together": "tgp" + "_v1_{u43}",
    "Twilio": "S" + "K{h32}",
    "Twilio account": "A" + "C{h32}",
    "Typeform": "tfp" + "_{a44}_{a14}",
    "Ubidots": "BB" + "FF-{a30}",
    "Vault": "hv" + "s.{u95}",
    "Vault batch": "hv" + "b.{u140}",
    "Voiceflow": "VF" + ".DM.{h24}.{a16}",
    "WakaTime": "waka" + "_{uuid}",
    "xAI": "xai" + "-{a80}",
    "Yandex": "AQ" + "VN{u36}",
    "Zoho": "1000" + ".{h32}.{h32}",
    "Zuplo": "zpka" + "_{l32}_{h8}",
}
_KEY_SENTENCES = (
    "Could you check {} for me?",
    "I pasted {} into the console and it worked.",
    "deploy failed: {} was rejected",
    "<{}>",
    "Use {}.",
    "curl https://api.example.org/v1 --header 'x: {}'",
)


def vendor_keys(rounds: int = 3) -> Iterator[Case]:
    """Return keys in the forms of well-known vendors, in sentences without a word for keys."""
    chance = random.Random(SEED)
    for vendor, form in VENDOR_FORMS.items():
        for place in range(rounds):
            value = drawn(form, chance)
            yield Case(f"vendor: {vendor}", _KEY_SENTENCES[place % len(_KEY_SENTENCES)].format(value), value)


# ── named values ──────────────────────────────────────────────────────────────────────────────────────────────────────

_KEY_NAMES = (
    "api_key",
    "apiKey",
    "API_KEY",
    "secret_key",
    "SECRET_KEY",
    "access_token",
    "accessToken",
    "auth_token",
    "client_secret",
    "GRAFANA_TOKEN",
    "STRIPE_SECRET",
    "deploy_key",
    "webhook_secret",
    "private_token",
    "encryption_key",
    "DATADOG_APP_KEY",
    "jwt_secret",
    "SIGNING_KEY",
    "refresh_token",
    "bot_token",
)
_PASSWORD_NAMES = (
    "password",
    "DB_PASSWORD",
    "dbPassword",
    "passwd",
    "PGPASSWORD",
    "smtp_pass",
    "admin-password",
    "passphrase",
    "pwd",
)
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

_KEY_PROSE = (
    "Please log in with the key {} and tell me what you see.",
    "Use the token {} for the staging server.",
    "The API key is {}, keep it safe.",
    "my api key: {}",
    "I rotated the secret, the new one is {}.",
    "Here is the access token you asked for: {}",
    "You can authenticate using key {}.",
    "The webhook secret ({}) expires on Friday.",
    "With the key {} it works on my machine.",
    "Our deploy key for the production cluster is {}",
    'the client secret should be "{}"',
    "call it with token `{}` in the header",
    "Credentials: {}",
    "the service uses API key {} in production",
    "Try secret {} instead",
    "the signing key of the billing service, {}, was leaked",
)
_PASSWORD_PROSE = (
    "The password is {}.",
    "Log in as ada with password {}",
    "my password: {}",
    "the admin password for the router is {}, please change it",
    "password {} works for the guest wifi",
    "I changed the password to {} yesterday",
    "use ada and the password '{}'",
    "The temporary password ({}) is valid for a day.",
    "passphrase {}",
    "Mein Passwort ist {}.",
    "Das Kennwort lautet {}",
    "Moje hasło to {}",
    "hasło: {}",
    "La contraseña es {}.",
    "Le mot de passe est {}.",
    "A senha é {}",
    "密码是{}",
    "пароль: {}",
)
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
    draw: Callable[[random.Random], str]
    written: Sequence[str]
    sentences: Sequence[str]


def _date(chance: random.Random, form: str) -> str:
    year, month, day = chance.randint(1950, 1999), chance.randint(1, 12), chance.randint(1, 28)
    return form.format(y=year % 100, Y=year, m=month, d=day)


def _drawn(form: str) -> Callable[[random.Random], str]:
    return lambda chance: drawn(form, chance)


def _dated(form: str, rest: str) -> Callable[[random.Random], str]:
    return lambda chance: _date(chance, form) + drawn(rest, chance)


def _one_of(begins: Sequence[str], rest: Callable[[random.Random], str]) -> Callable[[random.Random], str]:
    return lambda chance: chance.choice(begins) + rest(chance)


def _grouped(number: str, groups: str) -> str:
    """Return *number* in the places of the # of *groups*."""
    chars = iter(number)
    return "".join(next(chars) if char == "#" else char for char in groups)


NUMBERS: tuple[Number, ...] = (
    Number(
        "PL",
        "pl.pesel",
        _dated("{y:02}{m:02}{d:02}", "{d5}"),
        ("###########",),
        (
            "PESEL: {}",
            "Mój PESEL to {}.",
            "pacjent o numerze PESEL {} zgłosił się wczoraj",
            "podał {} jako swój PESEL",
            "Osoba legitymująca się PESEL-em {} podpisała umowę",
            "urodzona w Łodzi, {}, zamieszkała w Krakowie",
        ),
    ),
    Number(
        "PL",
        "pl.nip",
        _drawn("{d10}"),
        ("##########", "###-###-##-##", "### ### ## ##"),
        ("NIP: {}", "Firma o NIP {} wystawiła fakturę", "podatnik z NIP-em {}", "numer identyfikacji podatkowej {}"),
    ),
    Number("PL", "pl.regon", _drawn("{d9}"), ("#########",), ("REGON: {}", "spółka, REGON {}", "o numerze REGON {}")),
    Number(
        "DE",
        "de.idnr",
        _drawn("{d11}"),
        ("###########", "## ### ### ###"),
        ("Steuer-ID: {}", "Meine Steueridentifikationsnummer lautet {}.", "IdNr {}"),
    ),
    Number("DE", "de.vat", _drawn("{d9}"), ("DE#########",), ("USt-IdNr.: {}", "Rechnung mit {} im Fuß", "VAT {}")),
    Number(
        "CH",
        "ch.ssn",
        _drawn("756{d10}"),
        ("###.####.####.##",),
        ("AHV-Nummer {}", "Versichert unter {} seit 2011", "numéro AVS : {}"),
    ),
    Number(
        "FR",
        "fr.nir",
        _one_of("12", _dated("{y:02}{m:02}", "75{d8}")),
        ("###############", "# ## ## ## ### ### ##"),
        ("Numéro de sécurité sociale : {}", "assuré {} depuis 2010", "NIR {}"),
    ),
    Number(
        "ES",
        "es.dni",
        _drawn("{d8}{U1}"),
        ("#########", "########-#"),
        ("DNI: {}", "Mi DNI es {}.", "con documento nacional de identidad {}", "el titular, {}, firma"),
    ),
    Number(
        "ES",
        "es.nie",
        _one_of("XYZ", _drawn("{d7}{U1}")),
        ("#########", "#-#######-#"),
        ("NIE: {}", "su NIE es {}", "la solicitante, {}, acude"),
    ),
    Number(
        "IT",
        "it.iva",
        _drawn("0{d10}"),
        ("###########", "IT###########"),
        ("Partita IVA: {}", "P.IVA {}", "la ditta con partita iva {}"),
    ),
    Number(
        "PT",
        "pt.nif",
        _drawn("2{d8}"),
        ("#########", "### ### ###"),
        ("NIF: {}", "O meu número de contribuinte é {}.", "contribuinte {}"),
    ),
    Number(
        "BR",
        "br.cpf",
        _drawn("{d11}"),
        ("###########", "###.###.###-##"),
        ("CPF: {}", "Meu CPF é {}.", "cliente portador do CPF {}"),
    ),
    Number(
        "BR",
        "br.cnpj",
        _drawn("{d8}0001{d2}"),
        ("##.###.###/####-##", "##############"),
        ("CNPJ: {}", "empresa CNPJ {}"),
    ),
    Number(
        "IN",
        "in_.aadhaar",
        _one_of("23456789", _drawn("{d11}")),
        ("#### #### ####", "############"),
        ("Aadhaar number: {}", "mera Aadhaar {} hai", "please link aadhaar {} with my account", "मेरा आधार {} है"),
    ),
    Number(
        "IN",
        "in_.pan",
        _drawn("{V3}P{V1}{d4}{V1}"),
        ("##########",),
        ("PAN: {}", "mera PAN card {} hai", "my PAN is {}", "quoting {} on the form"),
    ),
    Number(
        "CN",
        "cn.ric",
        _one_of(["110101"], _dated("{Y}{m:02}{d:02}", "{d4}")),
        ("##################",),
        ("身份证号：{}", "我的身份证号码是{}。", "持证人{}已登记"),
    ),
    Number("NL", "nl.bsn", _drawn("{d9}"), ("#########", "####.##.###"), ("BSN: {}", "mijn burgerservicenummer is {}")),
    Number(
        "BE",
        "be.nn",
        _dated("{y:02}{m:02}{d:02}", "{d5}"),
        ("##.##.##-###.##", "###########"),
        ("rijksregisternummer {}", "numéro national : {}"),
    ),
    Number(
        "SE",
        "se.personnummer",
        _dated("{y:02}{m:02}{d:02}", "-{d4}"),
        ("###########",),
        ("personnummer {}", "kund {} har flyttat"),
    ),
    Number(
        "FI",
        "fi.hetu",
        _dated("{d:02}{m:02}{y:02}", "-{d3}{U1}"),
        ("###########",),
        ("henkilötunnus {}", "asiakas {} muutti"),
    ),
    Number(
        "NO",
        "no.fodselsnummer",
        _dated("{d:02}{m:02}{y:02}", "{d5}"),
        ("###########", "###### #####"),
        ("fødselsnummer: {}", "fnr {}"),
    ),
    Number(
        "CZ",
        "cz.rc",
        _dated("{y:02}{m:02}{d:02}", "{d4}"),
        ("######/####",),
        ("rodné číslo {}", "pacient {} se dostavil"),
    ),
    Number(
        "RO",
        "ro.cnp",
        _one_of("12", _dated("{y:02}{m:02}{d:02}", "12{d4}")),
        ("#############",),
        ("CNP: {}", "cod numeric personal {}"),
    ),
    Number(
        "TR",
        "tr.tckimlik",
        _one_of("123456789", _drawn("{d10}")),
        ("###########",),
        ("T.C. Kimlik No: {}", "kimlik numarası {}"),
    ),
    Number(
        "KR", "kr.rrn", _dated("{y:02}{m:02}{d:02}", "-1{d6}"), ("##############",), ("주민등록번호 {}", "고객 {} 확인")
    ),
    Number(
        "MX",
        "mx.curp",
        _one_of(["BOXW"], _dated("{y:02}{m:02}{d:02}", "HNERXN0{d1}")),
        ("##################",),
        ("CURP: {}", "el titular {} firma"),
    ),
    Number(
        "AR",
        "ar.cuit",
        _drawn("20{d9}"),
        ("##-########-#", "###########"),
        ("CUIT {}", "mi CUIL es {}"),
    ),
    Number(
        "CL",
        "cl.rut",
        _one_of(["10", "12", "15", "18", "21"], _drawn("{d6}{K1}")),
        ("##.###.###-#", "########-#"),
        ("RUT: {}", "mi RUT es {}"),
    ),
    Number(
        "ZA",
        "za.idnr",
        _dated("{y:02}{m:02}{d:02}", "{d4}08{d1}"),
        ("#############",),
        ("ID number: {}", "South African ID {}"),
    ),
    Number("AU", "au.tfn", _drawn("{d9}"), ("### ### ###", "#########"), ("TFN: {}", "my tax file number is {}")),
    Number(
        "US",
        "us.rtn",
        _drawn("0{d8}"),
        ("#########",),
        ("routing number {}", "ABA: {}", "wire it, routing no. {}"),
    ),
    Number("GB", "", _drawn("{d2}-{d2}-{d2}"), ("########",), ("sort code {}", "Sort Code: {}")),
    Number("AU", "", _drawn("{d3}-{d3}"), ("#######",), ("BSB {}", "BSB number: {}")),
    Number(
        "IN",
        "",
        _one_of(["HDFC0", "ICIC0", "SBIN0", "UTIB0"], _drawn("{d6}")),
        ("###########",),
        ("IFSC code {}", "branch IFSC: {}", "transfer via {} today"),
    ),
)


@cache
def _is_valid(module: str) -> Callable[[str], bool]:
    loaded: Any = import_module(f"stdnum.{module}")
    return loaded.is_valid


def _valid(number: Number, chance: random.Random) -> str:
    while True:
        value = number.draw(chance)
        if not number.module or _is_valid(number.module)(value):
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
    for number in NUMBERS:
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


_PHONES: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "PL": (
        ("5## ### ###", "5########", "22 ### ## ##", "+48 6## ### ###"),
        (
            "Proszę dzwonić pod numer {}.",
            "tel. {}",
            "mój telefon: {}",
            "Zadzwoń do mnie: {}",
            "telefonicznie {}",
            "komórka {}",
            "kontakt telefoniczny {}",
            "z numerem telefonu {} skontaktował się klient",
            "oddzwonimy na {}",
        ),
    ),
    "DE": (
        ("0171 #######", "030 ######", "+49 151 ########"),
        ("Telefon: {}", "Rufen Sie mich unter {} an", "meine Handynummer ist {}", "Sie erreichen mich unter {}"),
    ),
    "ES": (
        ("6## ### ###", "6########", "91 ### ## ##"),
        ("teléfono {}", "Llámame al {}", "mi móvil es {}", "Teléfono de contacto: {}"),
    ),
    "IT": (("33# #######", "06 ########"), ("Telefono: {}", "il mio cellulare è {}", "chiamami al {}")),
    "PT": (("91# ### ###", "91#######"), ("telemóvel {}", "Ligue para {}", "telefone: {}")),
    "FR": (("06 ## ## ## ##", "06########"), ("Téléphone : {}", "appelez-moi au {}", "joignable au {}")),
    "CN": (("138########", "010-########"), ("电话：{}", "请拨打{}联系我", "我的手机号是{}", "联系电话{}")),
    "JP": (("090-####-####", "03-####-####"), ("電話番号：{}", "携帯{}まで")),
    "KR": (("010-####-####",), ("전화 {}", "연락처: {}", "휴대폰 번호는 {}입니다")),
    "RU": (("8 916 ###-##-##", "+7 916 ### ## ##"), ("телефон {}", "Звоните по номеру {}", "мой мобильный {}")),
    "IN": (("98### #####", "98########"), ("mera phone number {} hai", "call karo {}", "mobile: {}", "मेरा फोन {} है")),
}


def phone_numbers(rounds: int = 4) -> Iterator[Case]:
    """Return telephone numbers after words of several languages, in their inflected forms."""
    chance = random.Random(SEED + 4)
    for country, (forms, sentences) in _PHONES.items():
        for form in forms:
            for sentence in sentences:
                for _ in range(rounds):
                    value = "".join(chance.choice("23456789") if char == "#" else char for char in form)
                    yield Case(f"phone: {country}", sentence.format(value), value)


_PAPERS = (
    ("my driver’s license number is {}", "D{d7}"),
    ("driver's licence: {}", "{U5}{d6}"),
    ("Führerschein Nr. {}", "B{d9}X"),
    ("permis de conduire {}", "{d12}"),
    ("prawo jazdy {}", "{d5}/{d2}/{d4}"),
    ("Numer paszportu: {}", "EH{d7}"),
    ("paszport {}", "EA{d7}"),
    ("Reisepass C01X{}", "{d6}"),
    ("Reisepassnummer: {}", "C{d8}"),
    ("pasaporte {}", "AAA{d6}"),
    ("passaporto n. {}", "YA{d7}"),
    ("护照号码：{}", "E{d8}"),
    ("passport number {}", "X{d8}"),
    ("Personalausweisnummer {}", "L{d8}"),
)


def papers(rounds: int = 6) -> Iterator[Case]:
    """Return numbers of passports, licences and cards after words of several languages."""
    chance = random.Random(SEED + 5)
    for sentence, form in _PAPERS:
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

_HARMLESS = (
    "Invoice {d8} is due",
    "invoice no. {d10}",
    "INV-2024-{d7}",
    "Rechnung Nr. {d9}",
    "Rechnungsnummer: {d10}",
    "Faktura nr FV/2024/03/{d6}",
    "Faktura VAT nr {d9}",
    "factura {d10}",
    "Fattura n. {d9}",
    "facture n° {d10}",
    "order #{d3}-{d7}-{d7}",
    "Order number {d10}",
    "zamówienie nr {d9}",
    "Bestellnummer {d10}",
    "pedido {d9}",
    "PO {d10}",
    "ticket {d8}",
    "tracking number {d12}",
    "booking reference {U6}",
    "SKU {d8}-{d3}",
    "batch {d9}",
    "serial {U4}-{U4}-{U4}",
    "version 1.{d1}.{d2}.{d1}",
    "upgrade to 2.{d1}.{d1}.1",
    "section 3.{d1}.{d1}.2",
    "release 4.1.{d1}.{d1}",
    "see 1.2.{d1}.{d1}",
    "firmware 7.0.{d1}.12",
    "Chrome/12{d1}.0.{d4}.{d2}",
    "assemblyVersion 4.0.0.{d1}",
    "rozdział 2.{d1}.{d1}.1",
    "sha256:{h64}",
    "commit {h40}",
    "md5 {h32}",
    "etag {h16}",
    "fingerprint {h2}:{h2}:{h2}:{h2}:{h2}:{h2}:{h2}:{h2}:{h2}:{h2}",
    "12-34-56-78-90-{d2}",
    "at 10:{d2}:11:12:13:14",
    "id {uuid}",
    "trace {h32}-{h16}",
    "{d2}.{d2}.2024 - {d2}.{d2}.2025",
    "EUR {d3}.{d3},{d2}",
    "$1,{d3},{d3}.00",
    "{d3} 000 000 people",
    "population {d7}",
    "epoch 17{d8}",
    "timestamp 17{d11}",
    "ISBN 978-3-16-{d6}-0",
    "x = {d6} + {d7}",
    "lat 48.{d6}, lon 11.{d6}",
    "max_tokens={d4}",
    "token: null",
    "the key idea is simple",
    "press any key to continue",
    "the password must have 8 characters",
    "password reset in 24h",
    "API key required",
    "public key infrastructure since 1976",
    "primary key user_id",
    "the secret of 1000 days",
    "author: J. Doe, 1999",
    "key: value",
    "tokens per second: {d4}",
    "session 12 of 20",
    "passwords are hashed with argon2id",
    "use the token from step 3",
    "keyboard layout us-104",
    "turkey 2kg",
    "monkey42 is a user",
    "the auth flow in RFC6749",
    "Kapitel 4.{d1}.{d1}.2 beschreibt",
    "Aktenzeichen {d2} O {d4}/24",
    "colour #{h6}",
    "page {d3}-{d3}",
    "score {d2}:{d2}",
)


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
    for form in _HARMLESS + _HARMLESS_POLISH:
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
