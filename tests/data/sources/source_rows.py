"""A row of each source of which only the schema is known, under a file name that the source takes.

The columns are those that the source's `cite` names; the contents are ours.
"""

import json

from whet.types import Json

Rows = dict[str, list[dict[str, Json]]]
CHAT: list[Json] = [{"role": "user", "content": "What is 1 + 1?"}]
ASKED = "What is 1 + 1?\n\nPresent the answer in LaTex format: \\boxed{Your answer}"
PROGRAM = "def main_solution(x):\n    return x * 2"
GRID: Json = [[1, 0], [0, 1]]
TURNED: Json = [[0, 1], [1, 0]]


def verl(source: str, truth: Json = "2", **extra: Json) -> dict[str, Json]:
    return {
        "data_source": source,
        "prompt": CHAT,
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"index": 1, **extra},
    }


def eurus(**columns: Json) -> dict[str, Json]:
    chat: list[Json] = [
        {"from": "human", "value": ASKED},
        {"from": "gpt", "value": "So \\boxed{2}."},
    ]
    return {"conversations": chat, "task": "Math", "dataset": "numina", **columns}


EURUS_RL: dict[str, Json] = {
    **verl("numina_olympiads"),
    "prompt": [
        {"role": "system", "content": "Think in steps."},
        {"role": "user", "content": ASKED},
    ],
}
CASES = json.dumps([{"input": "1\n", "output": "2\n", "testtype": "stdin"}])
CALLS = json.dumps([{"type": "function_call", "fn_name": "double", "input": [2], "output": [4]}])
PAIR: Json = {"input": GRID, "output": TURNED}
ARC: dict[str, Json] = {"train": [PAIR, PAIR], "test": [PAIR]}
MADE: dict[str, Json] = {
    "nodes": [{"id": 0, "name": "Ann"}, {"id": 1, "name": "Bob"}],
    "links": [{"source": 0, "target": 1}],
}
HUMANEVAL: dict[str, Json] = {
    "task_id": "HumanEval/0",
    "prompt": "def double(x):\n    '''Double x.'''\n",
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}
HITAB: dict[str, Json] = {
    **{"id": "a", "table_id": "100", "question": "How many?", "answer": [52.1]},
    "aggregation": ["none"],
}
TABLES: list[Json] = [
    "<table><tr><td>Year</td><td>2020</td></tr><tr><td>Sales</td><td>5</td></tr></table>"
]

ROWS: dict[str, Rows] = {
    "eurus2_sft": {"0000.parquet": [eurus()]},
    "tango_sft": {"0000.parquet": [eurus()]},
    "eurus2_rl": {"train.parquet": [EURUS_RL]},
    "tango_rl": {"train.parquet": [EURUS_RL]},
    "deepmath": {
        "data/train-0.parquet": [
            {
                **{"question": "What is 1 + 1?", "final_answer": "2", "difficulty": 4.5},
                **{"topic": "Algebra", "r1_solution_1": "It is 2.", "r1_solution_2": "2"},
                "r1_solution_3": "Two, \\boxed{2}.",
            }
        ]
    },
    "boba": {
        "AReaL-boba-106k.jsonl": [
            {
                "prompt": "<｜User｜>What is 1 + 1?<｜Assistant｜><think>\n",
                **{"task": "math", "query_id": "q1", "solutions": ["\\boxed{2}"]},
            }
        ]
    },
    "dapo": {"data/dapo-math-17k.parquet": [verl("math_dapo"), verl("math_dapo")]},
    "or1": {
        "data/math-0.parquet": [
            verl(
                "train-math-deepscaler",
                '["2"]',
                model_difficulty={"DeepSeek-R1-Distill-Qwen-7B": 3},
            )
        ]
    },
    "dapo_or1": {"data/train-0.parquet": [{"problem": "What is 1 + 1?", "answer": "2"}]},
    "deepscaler": {"deepscaler.json": [{"problem": "1 + 1?", "answer": "2", "solution": "Two."}]},
    "bigmath": {
        "data/train-0.parquet": [
            {
                **{"problem": "1 + 1?", "answer": "2", "source": "orca_math"},
                **{"domain": ["Algebra"], "llama8b_solve_rate": 0.5},
            }
        ]
    },
    "numina": {
        "data/train-0.parquet": [
            {
                **{"problem": "1 + 1?", "solution": "It is 2.", "answer": "2", "source": "cn_k12"},
                **{"problem_type": "Algebra", "question_type": "math-word-problem"},
                **{"problem_is_valid": "Yes", "solution_is_valid": "Yes", "synthetic": False},
            }
        ]
    },
    "webinstruct": {
        "data/train-0.parquet": [
            {
                **{"id": "1", "question": "How fast is it?", "answer": "3 m/s"},
                **{"answer_type": "Float", "category": "Physics", "difficulty": "University"},
            }
        ]
    },
    "livecodebench": {
        "test.jsonl": [
            {
                **{"question_title": "Add", "question_content": "Add one.", "question_id": "1"},
                **{"public_test_cases": CASES, "private_test_cases": CASES, "difficulty": "easy"},
                **{"contest_id": "c", "contest_date": "2024", "platform": "atcoder"},
                **{"starter_code": "", "metadata": "{}"},
            }
        ]
    },
    "livecodebench_train": {
        "lcbv5/train-0.parquet": [
            {
                "problem": "Add one.",
                "starter_code": "",
                "tests": CASES,
                "metadata": {"func_name": None},
            }
        ]
    },
    "primeintellect": {
        "primeintellect/train-0.parquet": [
            {
                "problem": "Double a number.",
                "solutions": ["def double(x): return 2 * x"],
                "tests": CALLS,
            }
        ]
    },
    "taco": {
        "data/train-0.parquet": [
            {
                "question": "Read a number from the input and print the number that follows it. "
                * 2,
                **{"input_output": '{"inputs": ["1"], "outputs": ["2"]}', "source": "codeforces"},
                **{"solutions": ["print(int(input()) + 1)"], "starter_code": ""},
            }
        ]
    },
    "codeio": {
        "0_368500_filtered_v2_ds25.sced.jsonl": [
            {
                **{"problem_description": "Double x.", "io_requirements": "x: a number"},
                **{"refcode": PROGRAM, "funcname": "main_solution"},
                "ios": [{"input": {"x": 2}, "output": 4}],
            }
        ]
    },
    "cruxeval": {
        "test.jsonl": [
            {
                "code": "def f(x):\n    return x + [1]",
                "input": "[2]",
                "output": "[2, 1]",
                "id": "s0",
            }
        ]
    },
    "hitab": {"test_samples.jsonl": [HITAB]},
    "multihiertt": {
        "train.json": [
            {
                **{"uid": "u1", "paragraphs": ["Text."], "tables": TABLES, "table_description": {}},
                "qa": {"question": "What were the sales?", "answer": 5, "text_evidence": []},
            }
        ]
    },
    "finqa": {
        "data/test-0.parquet": [
            {
                **{"id": "f1", "pre_text": ["Before."], "post_text": ["After."]},
                **{"table": [["", "2020"], ["sales", "5"]]},
                **{"question": "What is the change?", "answer": "14.1%"},
            }
        ]
    },
    "arcagi1": {"evaluation/a.json": [ARC]},
    "arcagi2": {"training/a.json": [ARC]},
    "barc": {"problems.jsonl": [{"examples": [[GRID, TURNED]] * 3, "source": "x", "seeds": []}]},
    "guru": {"train/math__combined_54.4k.parquet": [verl("math__dapo_or1")]},
    "bgqa": {
        "test.json": [
            {"example": "The cat sees the dog. Is it so?", "label": "proved", "goal": "g"}
        ]
    },
    "npg_sft": {
        "sft_data_npg_3np.parquet": [{"prompt": "Find a clique.", "response": "<think>\nSo [Ann]"}]
    },
    "npg_rl": {
        "train_graph_3np_all_levels_45000.parquet": [
            {
                **verl("MCP_complicated", "", problem_text="Find a clique.", exact_answer="2"),
                "extra_info": {
                    **{"index": 1, "graph": json.dumps(MADE), "exact_answer": "2"},
                    "problem_text": "Find a clique.",
                },
            }
        ]
    },
    "livemathbench": {
        "AMC_en.jsonl": [{"question": "1 + 1?", "answer": "2", "question_type": "problem-solving"}]
    },
    "gpqa_diamond": {
        "gpqa_diamond.csv": [
            {
                **{"Question": "Which?", "Correct Answer": "this", "Subdomain": "Physics"},
                **{f"Incorrect Answer {number}": f"that {number}" for number in (1, 2, 3)},
            }
        ]
    },
    "supergpqa": {
        "SuperGPQA-all.jsonl": [
            {
                **{
                    "uuid": "u",
                    "question": "Which?",
                    "options": ["this", "that"],
                    "answer": "that",
                },
                **{"answer_letter": "B", "discipline": "Science", "difficulty": "hard"},
            }
        ]
    },
    "humaneval_plus": {"data/test-0.parquet": [HUMANEVAL]},
    "mbpp_plus": {
        "data/test-0.parquet": [
            {
                **{"task_id": 2, "code": "def double(x):\n    return 2 * x", "prompt": "Double."},
                **{"source_file": "s", "test_imports": [], "test_list": ["assert double(2) == 4"]},
                "test": "assert double(2) == 4\nassert double(3) == 6",
            }
        ]
    },
    "livebench": {
        "data/test-0.parquet": [
            {
                **{"question_id": "q", "category": "reasoning", "task": "web_of_lies_v2"},
                **{"turns": ["Who lies? Answer **yes, no, yes**."], "ground_truth": "yes, no, yes"},
            }
        ]
    },
    "ifeval": {
        "ifeval_input_data.jsonl": [
            {
                **{"key": 1000, "prompt": "Write without commas."},
                **{"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
            }
        ]
    },
    "node_classification": {
        "test.jsonl": [{"prompt": "Which label has the paper?", "answer": "Theory"}]
    },
    "link_prediction": {"test.jsonl": [{"prompt": "Are the papers linked?", "answer": "Yes"}]},
    "process_bench": {
        "gsm8k.json": [
            {
                **{"id": "gsm8k-0", "generator": "m", "problem": "1 + 1?", "steps": ["a", "b"]},
                **{"final_answer_correct": False, "label": 1},
            }
        ]
    },
}
BESIDE = {"hitab": {"tables/raw/100.json": {"texts": [["", "2020"], ["workers", "52.1"]]}}}
"""JSON files that belong to the rows."""
