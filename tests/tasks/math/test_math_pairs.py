"""Answers that are the same, and answers that only look alike."""

import pytest
from math_problems import is_right

SAME = r"""
1 :: 1.0
1 000.99 :: 1000.99
81 :: \$81
81 :: 81 dollars
\frac{3}{4} :: 0.75
x^2-1 :: (x-1)(x+1)
\{1,2,3\} :: \{3,1,2\}
(1,2) :: \left( 1, 2 \right)
\sqrt{8} :: 2\sqrt{2}
\sqrt{8} :: 2.828427
\frac{1}{\sqrt{2}} :: \frac{\sqrt{2}}{2}
\sqrt[3]{8} :: 2
2^{10} :: 1024
5! :: 120
\binom{5}{2} :: 10
\log_2 8 :: 3
\ln e^2 :: 2
e^{i\pi} :: -1
\sin 30^\circ :: \frac12
\frac{\pi}{2} :: 90^\circ
90^\circ :: 90
x=3 :: 3
x=3 \text{ or } x=-3 :: \pm 3
x=\pm 3 :: 3,-3
y=2x+1 :: 2x-y+1=0
y=2x+1 :: 2x+1
f(x)=2x+1 :: y=2x+1
x>5 :: (5,\infty)
x>5 :: 5<x
-1<x\le 1 :: (-1,1]
|x|<2 :: (-2,2)
|x|\ge 2 :: (-\infty,-2]\cup[2,\infty)
x\ne 0 :: (-\infty,0)\cup(0,\infty)
x<1\text{ or }x>2 :: (-\infty,1)\cup(2,\infty)
\mathbb{R}\setminus\{0\} :: (-\infty,0)\cup(0,\infty)
\{x \mid -2 \le x < 1\} :: [-2, 1)
\emptyset :: \{\}
\{1\}\cup\{2\} :: \{1,2\}
\begin{pmatrix}1\\2\end{pmatrix} :: (1,2)
\begin{pmatrix}1\\2\end{pmatrix} :: \begin{bmatrix}1\\2\end{bmatrix}
\begin{pmatrix}1&2\\3&4\end{pmatrix} :: [[1,2],[3,4]]
\begin{pmatrix}6&8\\10&12\end{pmatrix} :: \begin{pmatrix}1&2\\3&4\end{pmatrix}+\begin{pmatrix}5&6\\7&8\end{pmatrix}
\begin{pmatrix}2&1\\4&3\end{pmatrix} :: \begin{pmatrix}1&2\\3&4\end{pmatrix}\begin{pmatrix}0&1\\1&0\end{pmatrix}
\begin{cases}x=1\\y=2\end{cases} :: (1,2)
10\text{ cm} :: 10
10 \text{ cm}^2 :: 10 square centimeters
5 \text{ km/h} :: 5 km per hour
50\% :: 50 percent
12,345 :: 12345
10{,}000 :: 10000
1.22 :: 1,22
1.5 :: 1\frac{1}{2}
1.5 :: 1 1/2
-\frac{1}{2} :: \frac{1}{-2}
\pi :: 3.14159265
3:4 :: 6:8
\text{Yes} :: yes
\text{(A)} :: A
No solution :: no solution.
1.23\times 10^{5} :: 1.23e5
\frac{x+1}{2} :: \frac{x}{2}+\frac12
(x+1)(x+2) :: x^2+3x+2
\sin^2 x+\cos^2 x :: 1
e^{2x} :: (e^x)^2
\ln(x^2) :: 2\ln x
\frac{2}{3} :: 0.6666667
1,2,3 :: 3, 2 and 1
(1,2),(3,4) :: (3,4),(1,2)
\frac{n(n+1)}{2} :: \frac{n^2+n}{2}
204_5 :: 204_{5}
6:30 \text{ PM} :: 18:30
3\sqrt{2} :: 3√2
\frac{3\pi}{4} :: \frac34\pi
3+4i :: 4i+3
|3+4i| :: 5
\lfloor 3.7\rfloor :: 3
2^{2^{3}} :: 256
0.\overline{3} :: \frac13
2\frac{3}{4} :: \frac{11}{4}
x^{2}y :: yx^2
\arctan(2) :: \tan^{-1}(2)
7^{th} :: 7
17 \bmod 5 :: 2
\sum_{k=0}^{n} a_k b_k :: \sum_{k=0}^{n} b_k a_k
2\pi k, k \in \mathbb{Z} :: 2k\pi, k\in\mathbb{Z}
(p,q)=(3,2) :: (3,2)
p=5,q=2;p=7,q=2 :: (5,2),(7,2)
\max(2,3) :: 3
9 (apples) :: 9
x\in\mathbb{R} :: (-\infty,\infty)
x > -1 \text{ and } x < 1 :: (-1,1)
\sum_{k=1}^{4} k^2 :: 30
\prod_{k=1}^{4} k :: 24
\gcd(12,18) :: 6
\log 100 :: 2
\log 2 :: \ln 2
n\equiv 1 \pmod 7 :: n\equiv 1 \pmod{7}
5 million :: 5000000
(-8)^{1/3} :: -2
(-128)^{1/7} :: -2
-\begin{pmatrix}1\\2\end{pmatrix} :: \begin{pmatrix}-1\\-2\end{pmatrix}
\operatorname{lcm}(4,6) :: \text{lcm}(4,6)
sinx :: \sin(x)
y^{\prime}+y=0 :: y'+y=0
\Phi(x,y)=\frac{x+1}{2y} :: \Phi(x,y)=\frac{x}{2y}+\frac{1}{2y}
"""
DIFFERENT = r"""
\frac{3}{4} :: 75
500 :: 5
50 :: 0.5
50\% :: 5000
10000 :: 10001
x^2-1 :: (x-1)^2
\{1,2,3\} :: \{3,1\}
\{-2\} :: -2
(1,2) :: (2,1)
(1,2) :: \{1,2\}
[1,2) :: [1,2]
(1,2) :: [1,2]
\sqrt{8} :: 2.83
\pm 3 :: 3
x>5 :: x\ge 5
x>5 :: x<5
\begin{pmatrix}1&2\\3&4\end{pmatrix} :: \begin{pmatrix}1&3\\2&4\end{pmatrix}
10\text{ cm} :: 10 meters
12345 :: 12.345
32349 :: 32, 349
11/2 :: 1 1/2
3.14 :: \pi
2\pi :: 6.28
3:4 :: 4:3
12:00 :: 1:00
Yes :: No
A :: B
ABC :: CBA
\frac{1}{23} :: \frac{12}{3}
x_1 :: x_2
\frac{a}{b} :: \frac{b}{a}
1-\sqrt{2} :: \sqrt{2}-1
\frac{2}{3} :: 0.67
|x| :: x
-5 :: 5
1,2 :: 1,2,3
1,1,2 :: 1,2
(1,2),(3,4) :: (1,2)
\frac{n(n+1)}{2} :: \frac{n(n-1)}{2}
1 :: \lfloor\frac{2n}{3}\rfloor+1
204_5 :: 204_6
6:30 \text{ PM} :: 6:30 am
x^2+C :: x^2
3+4i :: 3-4i
1/0 :: 0
-\infty :: \infty
a=1,b=2 :: a=2,b=1
AB=4,CD=5 :: AB=5,CD=4
f(n)=n,g(n)=1 :: f(n)=1,g(n)=n
2\frac{3}{4} :: \frac{6}{4}
\frac{1}{2x} :: \frac{x}{2}
7=11a+c :: 11a+c
a+3z=0 :: 0
\sin(x)=\frac12 :: \cos(x)=\frac12
\pi \times 10^{-40} :: 2\pi \times 10^{-40}
n\equiv 1 \pmod 7 :: n\equiv 1 \pmod{8}
n\equiv 1 \pmod 7 :: 1
\begin{pmatrix}1&2\\3&4\end{pmatrix} :: \begin{pmatrix}1&2&3\\4&5&6\end{pmatrix}
\begin{pmatrix}1&2\\3&4\end{pmatrix} :: [1,2,3,4]
x<2 :: y<2
36\text{ m}^2 :: 36\text{ m}
1:2:3 :: 1:2
99999999999 :: 100000000000
"""


def pairs(table: str) -> list[tuple[str, str]]:
    return [(line.split(" :: ")[0], line.split(" :: ")[1]) for line in table.strip().splitlines()]


@pytest.mark.parametrize(("gold", "answer"), pairs(SAME))
def test_the_same_answer_is_right_in_either_spelling(gold: str, answer: str) -> None:
    assert is_right(gold, answer)
    assert is_right(answer, gold)


@pytest.mark.parametrize(("gold", "answer"), pairs(DIFFERENT))
def test_another_answer_is_wrong_either_way(gold: str, answer: str) -> None:
    assert not is_right(gold, answer)
    assert not is_right(answer, gold)
