"""Draw graphs: friendships, co-authors, flights, facts about entities.

The graphs resemble such networks but copy no published data: friends of friends become friends, the
authors of a paper all know each other, and a few hubs have many neighbours.
"""

from itertools import combinations
from math import asin, cos, radians, sin, sqrt
from random import Random

from whet.tasks.graphs.instance import IntPair
from whet.types import Json

Payload = dict[str, Json]

_EARTH_KM = 6371.0


def friends(rng: Random, size: int, *, components: int = 1) -> Payload:
    """Draw a social network: everyone meets someone already in it, then friends of friends."""
    edges: set[IntPair] = set()
    starts = {0, *rng.sample(range(1, size), components - 1)}
    groups: list[list[int]] = []
    for node in range(size):
        if node in starts:
            groups.append([node])
            continue
        group = rng.choice(groups)
        edges.add((rng.choice(group), node))
        group.append(node)
    density = rng.uniform(0.2, 1.2)
    for group in groups:
        for _ in range(int(density * len(group)) if len(group) > 2 else 0):
            edges.add(_new_friends(rng, group, edges))
    return _to_payload(rng, people(rng, size), edges)


def authors(rng: Random, size: int, *, density: float = 0.0) -> Payload:
    """Draw a co-author network: papers of up to five authors, one of whom already has a paper.

    Random pairs are added up to the density, so that cliques are hard to tell from chance.
    """
    edges: set[IntPair] = set()
    writers = [0]
    while len(writers) < size or rng.random() < 0.7:
        team = {rng.choice(writers)}
        for _ in range(rng.randint(1, min(4, 1 + size // 5))):
            if len(writers) < size and rng.random() < 0.5:
                writers.append(len(writers))
                team.add(writers[-1])
            else:
                team.add(rng.choice(writers))
        edges.update(combinations(sorted(team), 2))
    while len(edges) < density * size * (size - 1) / 2:
        a, b = rng.sample(range(size), 2)
        edges.add((min(a, b), max(a, b)))
    return _to_payload(rng, people(rng, size, has_initials=True), edges)


def flights(rng: Random, size: int) -> Payload:
    """Draw airports and the great-circle distance of each pair in whole kilometres."""
    codes = rng.sample(sorted(_AIRPORTS), size)
    return {
        "nodes": list(codes),
        "edges": [[a, b, kilometres(a, b)] for a, b in combinations(codes, 2)],
    }


def facts(rng: Random, size: int) -> Payload:
    """Draw a connected graph of entities with hubs and chains, and a relation on every edge."""
    edges: set[IntPair] = set()
    hubs = rng.uniform(0.0, 0.8)
    for node in range(1, size):
        if rng.random() < hubs:
            edges.add((int(node * rng.random() ** 2), node))
        else:
            edges.add((rng.randrange(max(0, node - 4), node), node))
    for _ in range(rng.randrange(size // 2 + 1)):
        a, b = rng.sample(range(size), 2)
        edges.add((min(a, b), max(a, b)))
    names = rng.sample(_ENTITIES, size)
    rows = _shuffle_edges(rng, names, edges)
    return {"nodes": list[Json](names), "edges": [[a, b, rng.choice(_RELATIONS)] for a, b in rows]}


def people(rng: Random, count: int, *, has_initials: bool = False) -> list[str]:
    """Draw different names; with initials, some are like `Ida M. Vogel`."""
    names: dict[str, None] = {}
    while len(names) < count:
        initial = ""
        if has_initials and rng.random() < 0.4:
            initial = f" {rng.choice('ABCDEFGHJKLMNPRSTW')}."
        names[f"{rng.choice(_FIRST_NAMES)}{initial} {rng.choice(_LAST_NAMES)}"] = None
    return list(names)


def kilometres(a: str, b: str) -> int:
    """Measure the great circle between two airports (haversine).

    >>> kilometres("LHR", "JFK")
    5540
    """
    (lat_a, lon_a), (lat_b, lon_b) = (tuple(map(radians, _AIRPORTS[code])) for code in (a, b))
    chord = sin((lat_b - lat_a) / 2) ** 2 + cos(lat_a) * cos(lat_b) * sin((lon_b - lon_a) / 2) ** 2
    return round(2 * _EARTH_KM * asin(sqrt(chord)))


def _new_friends(rng: Random, group: list[int], edges: set[IntPair]) -> IntPair:
    a = rng.choice(group)
    around = [y if x == a else x for x, y in edges if a in (x, y)]
    b = rng.choice(around)
    others = [y if x == b else x for x, y in edges if b in (x, y)]
    c = rng.choice(others if rng.random() < 0.6 else group)
    if c == a:
        c = b
    return min(a, c), max(a, c)


def _to_payload(rng: Random, names: list[str], edges: set[IntPair]) -> Payload:
    rows = _shuffle_edges(rng, names, edges)
    return {"nodes": list[Json](names), "edges": [[a, b] for a, b in rows]}


def _shuffle_edges(rng: Random, names: list[str], edges: set[IntPair]) -> list[tuple[str, str]]:
    """Name the nodes in random order, so that the order has no meaning, and list the edges."""
    order = list(range(len(names)))
    rng.shuffle(order)
    pairs = sorted((min(order[a], order[b]), max(order[a], order[b])) for a, b in edges)
    return [(names[a], names[b]) for a, b in pairs]


_FIRST_NAMES = str.split(
    """
    Adam Agnes Alba Alice Amir Ana Anders Angela Arjun Aya Bela Boris Brett Carla Carmen Cem Chloe
    Clara Daniel Devika Diego Dora Edith Elena Emil Erik Esra Fatima Felix Finn Gail George Grace
    Hana Hector Helen Hugo Ida Ines Ivan Jana Jonas Julia Kamal Karin Keiko Kofi Lara Leo Lin Lucas
    Lydia Magda Marco Mei Mila Nadia Nils Noor Olga Omar Otto Paula Pavel Petra Priya Quinn Ravi
    Rosa Rui Sana Sasha Selma Simon Sofia Stella Tara Theo Tomas Uma Vera Victor Wanda Wei Xenia
    Yara Yusuf Zoe
    """
)
_LAST_NAMES = str.split(
    """
    Abbott Adeyemi Ahmed Almeida Anand Archer Baker Balint Barros Becker Bergström Bianchi Boateng
    Bodnár Brandt Calder Carvalho Castillo Chen Choi Cohen Costa Dalton Delgado Desai Dietrich
    Dubois Eriksen Evans Faber Farkas Fischer Flores Fonseca Fujita Gallo Garcia Gruber Gupta Haas
    Hansen Hassan Herrera Hoffmann Horvat Ibrahim Ito Ivanova Jansen Jovanović Kaplan Kaur Keller
    Khan Kimura Kowalski Krüger Lambert Larsen Lee Lindqvist Lopez Maier Mancini Mbeki Mendes Meyer
    Molnár Moreau Mori Müller Nakamura Nguyen Novak Nowak Okafor Oliveira Olsen Ortega Park Patel
    Pereira Petrov Popescu Quist Ramirez Reyes Ricci Rossi Roux Sato Schmidt Schröder Sharma Silva
    Singh Sokolov Sørensen Suzuki Tanaka Tóth Torres Ueda Vargas Vega Vogel Wagner Wang Weber Wójcik
    Wolf Yamada Yilmaz Zhang Zimmermann
    """
)
_COORDINATES = """
    ATL 33.6 -84.4;PEK 40.1 116.6;LHR 51.5 -0.5;ORD 42 -87.9;HND 35.6 139.8;LAX 33.9 -118.4;
    CDG 49 2.5;DFW 32.9 -97;FRA 50 8.6;DEN 39.9 -104.7;HKG 22.3 113.9;MAD 40.5 -3.6;DXB 25.3 55.4;
    JFK 40.6 -73.8;AMS 52.3 4.8;CGK -6.1 106.7;BKK 13.7 100.8;SIN 1.4 104;CAN 23.4 113.3;
    LAS 36.1 -115.2;PHX 33.4 -112;IAH 30 -95.3;MIA 25.8 -80.3;MUC 48.4 11.8;KUL 2.7 101.7;
    FCO 41.8 12.3;SYD -33.9 151.2;IST 41.3 28.7;BCN 41.3 2.1;MEL -37.7 144.8;YYZ 43.7 -79.6;
    MSP 44.9 -93.2;SEA 47.4 -122.3;DEL 28.6 77.1;BOM 19.1 72.9;ICN 37.5 126.5;NRT 35.8 140.4;
    PVG 31.1 121.8;SFO 37.6 -122.4;MEX 19.4 -99.1;GRU -23.4 -46.5;EZE -34.8 -58.5;SCL -33.4 -70.8;
    BOG 4.7 -74.1;LIM -12 -77.1;JNB -26.1 28.2;CPT -34 18.6;NBO -1.3 36.9;CAI 30.1 31.4;ADD 9 38.8;
    LOS 6.6 3.3;CMN 33.4 -7.6;ALG 36.7 3.2;TUN 36.9 10.2;DKR 14.7 -17.5;ACC 5.6 -0.2;DAR -6.9 39.2;
    TNR -18.8 47.5;MRU -20.4 57.7;KEF 64 -22.6;OSL 60.2 11.1;ARN 59.7 17.9;HEL 60.3 25;
    CPH 55.6 12.7;DUB 53.4 -6.3;EDI 55.9 -3.4;LIS 38.8 -9.1;OPO 41.2 -8.7;ZRH 47.5 8.5;
    VIE 48.1 16.6;PRG 50.1 14.3;WAW 52.2 21;BUD 47.4 19.3;OTP 44.6 26.1;SOF 42.7 23.4;ATH 37.9 23.9;
    BEG 44.8 20.3;ZAG 45.7 16.1;RIX 56.9 24;TLL 59.4 24.8;KBP 50.3 30.9;SVO 56 37.4;LED 59.8 30.3;
    TBS 41.7 45;EVN 40.1 44.4;ALA 43.4 77;TAS 41.3 69.3;THR 35.7 51.3;DOH 25.3 51.6;RUH 25 46.7;
    AMM 31.7 36;TLV 32 34.9;KHI 24.9 67.2;CMB 7.2 79.9;KTM 27.7 85.4;DAC 23.8 90.4;RGN 16.9 96.1;
    HAN 21.2 105.8;SGN 10.8 106.7;MNL 14.5 121;TPE 25.1 121.2;KIX 34.4 135.2;CTS 42.8 141.7;
    GUM 13.5 144.8;PER -31.9 116;BNE -27.4 153.1;AKL -37 174.8;CHC -43.5 172.5;NAN -17.8 177.4;
    PPT -17.6 -149.6;HNL 21.3 -157.9;ANC 61.2 -150;YVR 49.2 -123.2;YUL 45.5 -73.7;YHZ 44.9 -63.5;
    BOS 42.4 -71;PTY 9.1 -79.4;SJO 10 -84.2;HAV 23 -82.4;SDQ 18.4 -69.7;UIO -0.1 -78.4;CCS 10.6 -67;
    ASU -25.2 -57.5;MVD -34.8 -56;GIG -22.8 -43.2;BSB -15.9 -47.9;REC -8.1 -34.9;LPB -16.5 -68.2;
    CUZ -13.5 -71.9
    """
_AIRPORTS = {
    code: (float(latitude), float(longitude))
    for code, latitude, longitude in map(str.split, _COORDINATES.split(";"))
}
"""Airport codes with latitude and longitude in degrees."""
_ENTITY_NAMES = """
    Lisbon;Portugal;Tagus;Alfama;Jazz;Fado;Guitar;Piano;Vienna;Austria;Danube;Waltz;Budapest;
    Hungary;Lake Balaton;Eger;Paprika;Engineer;Architect;Novelist;Poet;Physicist;
    Goalkeeper (association football);Point guard (basketball);Central European Time;
    Greenwich Mean Time;Eastern European Time;Romanesque style;Gothic architecture;Baroque;Kraków;
    Poland;Vistula;Warsaw;Gdańsk;Baltic Sea;North Sea;Bergen;Norway;Oslo;Fjord;Reykjavík;Iceland;
    Vatnajökull;São Tomé;São Paulo;Brazil;Samba;Bossa nova;Amazon River;Manaus;Lima;Peru;Cusco;
    Quechua language;Andes;Nairobi;Kenya;Lake Victoria;Kampala;Uganda;Swahili language;Marathon;
    Addis Ababa;Ethiopia;Coffee;Accra;Ghana;Cocoa;Dakar;Senegal;Gorée;Cairo;Nile;Alexandria;Arabic;
    Athens;Greece;Aegean Sea;Crete;Olive;Ankara;Turkey;Bosphorus;Tbilisi;Georgia (country);Caucasus;
    Tashkent;Silk Road;Samarkand;Chess;Delhi;India;Ganges;Varanasi;Cricket;Colombo;Sri Lanka;Tea;
    Hanoi;Vietnam;Mekong;Bangkok;Thailand;Kyoto;Japan;Osaka;Tea ceremony;Seoul;South Korea;
    Han River (Korea);Beijing;Great Wall;Sydney;Australia;Coral Sea;Rugby union;Wellington;
    New Zealand;St. John's  Newfoundland;Hudson Bay;O'Higgins Region;Route 66 (highway)
    """
_ENTITIES = [name.strip() for name in _ENTITY_NAMES.split(";")]
_RELATIONS = str.split(
    "birthPlace capital country genre isPartOf language location occupation region seeAlso "
    "timeZone type"
)
