"""Mathematics with a gold answer.

A response takes this way through the modules, each of which knows those before it:

    find           which words are the answer: a tag, boxes, or else what `prose` finds
    prose          an answer in words, by its marks or its last line; `plain_formula` for formulas
                   without dollar signs, `beside` for words that change a number: twice, squared
    asked_values   several values that the question asks for by name
    respelling     one spelling for what is written in many ways; `words` for number words
    lexer, parser  text into a `tree`
    compare        equal trees: lists, sets, intervals, equations; `constants` of integration
    numeric        equal expressions, by their values (`value_at_point`) and `corners`
    echo           a formula that only repeats the question; `question` reads what is asked
    task           puts these together, and writes the score
"""

from whet.tasks.math.numeric import MathConfig
from whet.tasks.math.task import Math

__all__ = ["Math", "MathConfig"]
