"""The names that the parser knows: functions, constants, Greek letters, units."""

import re

from whet.answers.doubt import CHOICE, CONTRACTION, DENIAL, FALSE, TURN, UNSURE, any_of


def word_set(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _word_lists(text: str) -> dict[str, str]:
    """Read rows of `name: word word ...` with semicolons between them."""
    rows = (row.partition(":") for row in text.split(";"))
    return {name.strip(): words for name, _, words in rows}


TRIGONOMETRIC = word_set("sin cos tan cot sec csc")
_MORE_PREFIXES = word_set("arcsin arccos arctan asin acos atan ln log lg sinh cosh tanh")
PREFIX_FUNCTIONS = TRIGONOMETRIC | _MORE_PREFIXES
"""Functions whose argument may follow without brackets, as in `sin x`."""
_OTHERS = word_set("exp sqrt det max min gcd lcm abs floor ceil arg deg dim arccot arcsec")
_SHORT_FORMS = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "lg": "log"}
FUNCTIONS = {name: name for name in PREFIX_FUNCTIONS | _OTHERS} | _SHORT_FORMS
OPAQUE = word_set("sum prod int lim iint oint bigcup bigcap")
CONSTANT_WORDS = {"pi": "π", "emptyset": "∅", "varnothing": "∅"}
CONSTANT_WORDS |= dict.fromkeys(("infty", "infinity", "inf", "oo"), "∞")
GREEK = word_set(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu "
    "xi rho varrho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma "
    "Upsilon Phi Psi Omega hbar ell partial nabla odot dots ldots cdots triangle angle prime "
    "star"
)
_MARKS = _word_lists(
    "vector: vec overrightarrow mathbf boldsymbol bm; bar: overline bar; hat: hat widehat; "
    "tilde: tilde; dot: dot; ddot: ddot; under: underline; circled: textcircled; field: mathbb; "
    "script: mathcal mathfrak mathscr"
)
VECTORS = {command: name for name, commands in _MARKS.items() for command in commands.split()}
"""Commands that mark a letter, and the word that names the mark."""
_UNITS = _word_lists(
    """
    mm: mm millimeter millimeters millimetre millimetres 毫米;
    cm: cm centimeter centimeters centimetre centimetres 厘米; m: meter meters metre metres 米;
    km: km kilometer kilometers kilometre kilometres 千米 公里; in: inch inches; ft: ft foot feet;
    yd: yd yard yards; mi: mi mile miles; mg: mg milligram milligrams; g: gram grams 克;
    kg: kg kilogram kilograms kgs 千克 公斤; lb: lb lbs pound pounds; oz: oz ounce ounces;
    ml: ml milliliter milliliters millilitre millilitres;
    l: liter liters litre litres; s: sec secs second seconds 秒;
    min: mins minute minutes 分钟; h: hr hrs hour hours 小时; day: day days; week: week weeks;
    month: month months; year: yr yrs year years; dollar: dollar dollars usd; cent: cent cents;
    degree: degree degrees; radian: rad radian radians; mph: mph; kmh: kmh kph;
    percent: percent percentage pct; N: newton newtons; J: joule joules; square: square sq;
    cubic: cubic; W: watt watts; V: volt volts; Hz: hz hertz; Pa: pa pascal pascals; K: kelvin;
    eV: ev electronvolt electronvolts; yuan: 元 yuan; t: 吨; euro: euro euros eur;
    sterling: sterling; ohm: ohm ohms; mol: mol mole moles
    """
)
UNIT_WORDS = {word: name for name, words in _UNITS.items() for word in words.split()}
UNIT_NAMES = UNIT_WORDS | {name.lower(): name for name in _UNITS}
"""Spellings that mean a unit where one is expected, as in `\\text{m}`."""
CURRENCIES = {"\\$": "dollar", "€": "euro", "£": "sterling", "¥": "yuan", "￥": "yuan"}
_DIMENSIONS = _word_lists(
    """
    length: mm cm m km in ft yd mi; mass: mg g kg lb oz t; volume: ml l; angle: degree radian;
    time: s min h; calendar: day week month year; money: dollar cent euro sterling yuan;
    share: percent; energy: eV J; power: W; voltage: V; frequency: Hz; pressure: Pa; force: N;
    resistance: ohm
    """
)
_PREFIXES = {"n": "nano", "micro": "micro", "m": "milli", "c": "centi", "k": "kilo"}
_PREFIXES |= {"M": "mega", "G": "giga", "T": "tera"}
_PREFIXED = _word_lists(
    """
    m: n micro m c k; s: n micro m; g: micro m k; l: micro m c; eV: n micro m k M G T;
    J: n micro m k M G T; W: n micro m k M G T; V: n micro m k M; Hz: m k M G T; Pa: m k M G;
    N: n micro m k M; ohm: m k M G
    """
)
PREFIXED_UNITS: dict[str, str] = {}
"""Spellings of prefixed units; their case distinguishes milli from mega: mW, MW, megawatts."""
DIMENSIONS = {unit: name for name, units in _DIMENSIONS.items() for unit in units.split()}
"""The dimension of each unit."""
for _base, _signs in _PREFIXED.items():
    for _sign in _signs.split():
        _unit = _sign + _base
        PREFIXED_UNITS |= {_unit: _unit, _unit.replace("l", "L"): _unit}
        PREFIXED_UNITS |= {_PREFIXES[_sign] + word: _unit for word in _UNITS[_base].split()}
        DIMENSIONS[_unit] = DIMENSIONS[_base]
PERCENT_WORDS = word_set(_UNITS["percent"])
_COUNTED = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty"
)
NUMBER_WORDS = {word: value for value, word in enumerate(_COUNTED.split())}
BASES = {word: str(value) for word, value in NUMBER_WORDS.items()}
"""Bases of numerals written in words, as in 1011_two."""
SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
"""Powers of ten in words after a number."""
ENGLISH = word_set(
    "yes no odd even true false both all any none only never always prime up down left right "
    "east west north south on off in out red blue one two"
)
"""Whole answers that are words although their letters could be a product."""
PROSE = word_set(
    "the is are of it its not to for we if so as by be an at any all has can how why was no yes "
    "his her she he you our did do had let get got new now one two per but out off may too via "
    "also then thus with sum old"
)
"""Short words that are never a product of letters."""

_REMARK = re.compile(
    any_of(DENIAL, FALSE, CHOICE, UNSURE, TURN, "rather|instead|but|no|none|false|untrue|invalid")
    + "|"
    + any_of(
        "is|are|was|were|be|would|should|must|mistake|error|sure|mod|modulo|when|where|for|true"
        "|correct|yes"
    )
    + r"|\b(?<!per )(?<!/)(?<!each )can\b(?!\s*\Z)|[^\W\d_]+ (?<!per )(?<!each )can\Z"
    + rf"|{CONTRACTION}|答案|结果|不|没|非|错|误|或|可能|也许|大概|应该",
    re.IGNORECASE,
)
"""Words that are never part of a unit: `is wrong`, `or maybe`, `mod`."""
_COUNTED_PARTS = re.compile(
    r"\s*(?:squared|cubed|factorial|hal(?:f|ves)|(?:third|quarter|fourth|fifth|sixth|eighth|tenth"
    r"|hundredth|thousandth)s?|dozens?|score|lakhs?|crores?)\b",
    re.IGNORECASE,
)
"""Right after a number, these change its value."""
COMMENT = re.compile(
    r"[\s*:]*(?:(?:in)?correct|right|wrong|valid|verified|confirmed|consistent|reasonable)"
    r"(?![a-zA-Z])[^0-9\n]{0,60}$",
    re.IGNORECASE,
)
"""Words after a marker that judge the answer instead of giving one."""
IS_FALSE = re.compile(any_of(FALSE, DENIAL) + f"|{CONTRACTION}", re.IGNORECASE)
_NUMBER_IN_TEXT = re.compile(r"(?:^|[\s(,;:])[0-9]")


def is_remark(text: str) -> bool:
    """Whether words after a number are a comment or change it, rather than a unit.

    >>> [is_remark(text) for text in ("is wrong", "or maybe 4", "red apples", "dozen", "答案")]
    [True, True, False, True, True]
    """
    return bool(_NUMBER_IN_TEXT.search(text) or _REMARK.search(text) or _COUNTED_PARTS.match(text))
