"""What puzzles are about: names, things and their phrases, categories, invented adjectives."""

from random import Random

PEOPLE = str.split(
    "Ada Amir Anna Boris Carla Chen Clara Daniel Diego Dora Elena Emil Farah Felix Fiona George "
    "Greta Hana Hugo Ines Ivan Jonas Julia Karim Kira Lena Leo Lucia Maya Milo Nadia Nina Noor "
    "Oscar Paula Peter Priya Quinn Rosa Samir Sofia Tara Theo Uma Vera Victor Wanda Yara Yusuf Zoe"
)


def _split_lists(text: str) -> dict[str, tuple[str, ...]]:
    """Read lines of `label: word word ...`; a line without a label continues the one before."""
    lists: dict[str, tuple[str, ...]] = {}
    label = ""
    for line in text.strip().splitlines():
        head, colon, rest = line.rpartition(":")
        label = head.strip() if colon else label
        lists[label] = (*lists.get(label, ()), *rest.split())
    return lists


VALUES: dict[str, tuple[str, ...]] = {"Name": tuple(PEOPLE[::3])} | _split_lists(
    """
    Job: baker carpenter dentist farmer gardener journalist lawyer mason nurse pilot plumber potter
        sailor tailor teacher weaver
    Pet: canary cat dog ferret goldfish hamster hedgehog horse iguana lizard newt parrot pony rabbit
        snail tortoise
    Color: amber beige black blue brown crimson gold green grey indigo orange pink purple red white
        yellow
    Drink: ale cider cocoa coffee espresso juice kefir lemonade milk mead soda sherry tea tonic
        water whey
    Food: beans bread cheese couscous curry dumplings eggs lentils noodles pasta pizza porridge rice
        salad soup stew
    Hobby: archery baking chess drawing embroidery fishing gliding hiking juggling knitting origami
        painting pottery sailing singing weaving
    Sport: badminton boxing cricket curling fencing golf handball hockey judo polo rowing rugby
        skating squash tennis volleyball
    Instrument: accordion banjo bassoon cello clarinet cornet drums flute guitar harp lute oboe
        piano trumpet tuba violin
    Flower: aster begonia clover daffodil daisy dahlia freesia gentian iris jasmine lilac lily
        orchid peony rose tulip
    """
)
"""The values of each attribute."""

PHRASES: dict[str, str] = {
    "Name": "{}",
    "Job": "the person who works as the {}",
    "Pet": "the person who keeps the {}",
    "Color": "the person whose favourite colour is {}",
    "Drink": "the person who drinks {}",
    "Food": "the person who eats {}",
    "Hobby": "the person whose hobby is {}",
    "Sport": "the person whose sport is {}",
    "Instrument": "the person who owns the {}",
    "Flower": "the person who grows the {}",
}
"""How to refer to a person by a value of each attribute."""

CATEGORIES: dict[str, tuple[str, ...]] = {"people": tuple(PEOPLE[1::3])} | _split_lists(
    """
    birds: crane eagle falcon finch heron kestrel magpie owl plover raven robin sparrow stork swan
    fruits: apple apricot banana cherry fig grape kiwi lemon mango melon papaya peach pear plum
    vehicles: bicycle bus ferry lorry moped rickshaw scooter sledge taxi tractor train tram truck
        van
    gems: agate amethyst beryl diamond emerald garnet jade jasper onyx opal pearl ruby sapphire
        topaz
    tools: anvil axe chisel drill file hammer level mallet pliers ruler saw spade vice wrench
    trees: alder ash beech birch cedar elm fir hazel larch maple oak pine poplar willow
    """
)
"""Things to put in order, by the plural of their category."""

_ONSETS = str.split("b bl br d dr f fl g gl gr h j k kl l m n p pl r s sh sk t tr v w z")
_MIDDLES = str.split("a e i o u")
_ENDS = str.split("b d g k l m n p r t x")
_TAILS = str.split("ic ous al ish ent ive ard une")


def invent_adjectives(rng: Random, number: int) -> list[str]:
    """Invent different adjectives, such as `blomish`."""
    words: dict[str, None] = {}
    while len(words) < number:
        parts = [rng.choice(part) for part in (_ONSETS, _MIDDLES, _ENDS, _TAILS)]
        words["".join(parts)] = None
    return list(words)
