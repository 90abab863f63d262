"""What a script calls its program with, worked out without running it."""

import pytest

from trainwright.errors import BadInput
from trainwright.export.reading.launch_flags import Flags, parse_flags


def flags(script: str, harmless: tuple[str, ...] = (), **stated: str) -> Flags:
    names = {name.removeprefix("arg"): value for name, value in stated.items()}
    return parse_flags(
        script, "run.sh", lambda name: name in ("tp", "pp"), stated=names, harmless=harmless.__contains__
    )


def words(script: str, **stated: str) -> dict[str, str]:
    found = flags(script, **stated)
    return {name: " ".join(each.shown for each in values) for name, values in found.values.items()}


@pytest.mark.parametrize(
    ("script", "tp"),
    [
        ("TP=4\nrun.py --tp $TP", "4"),
        ("TP=${TP:-2}\nrun.py --tp ${TP}", "2"),
        ("run.py --tp ${TP:-2}", "2"),
        (": ${TP:=8}\nrun.py --tp $TP", "8"),
        ("A=2; B=4\nrun.py --tp $((A * B))", "8"),
        ("A=16\nrun.py --tp=$(( $A / 2 ))", "8"),
        ("set -- 4 8\nrun.py --tp $2", "8"),
        ("X=tp-4\nrun.py --tp ${X#tp-}", "4"),
        ("X=4.json\nrun.py --tp ${X%.json}", "4"),
        ("S=8b\nif [ $S = 8b ]; then TP=1; elif [ $S = 7b ]; then TP=8; else TP=2; fi\nrun.py --tp $TP", "1"),
        ("S=70b\nif [[ $S == 8b ]]; then TP=1; elif [[ $S == 70* ]]; then TP=8; fi\nrun.py --tp $TP", "8"),
        ("N=4\nif (( N > 2 )); then TP=8; else TP=1; fi\nrun.py --tp $TP", "8"),
        ("N=4\n[ $N -gt 8 ] && TP=8 || TP=2\nrun.py --tp $TP", "2"),
        ("S=b\ncase $S in a) TP=1;; b|c) TP=4;; *) TP=8;; esac\nrun.py --tp $TP", "4"),
        ("if [ -z \"$TP\" ]; then TP=2; fi\nrun.py --tp $TP", "2"),
        ("if [ $# -lt 1 ]; then echo usage; exit 1; fi\nrun.py --tp 4", "4"),
        ("if [ -z \"$DATA\" ]; then echo no data; exit 1; fi\nrun.py --tp 4", "4"),
        ("A=(--tp 4)\nrun.py \"${A[@]}\"", "4"),
        ("A=(--lr 1)\nA+=(--tp 4)\nrun.py ${A[*]}", "4"),
        ("A=\"--lr 1\"\nA+=\" --tp 4\"\nrun.py $A", "4"),
        ("A=\"--lr 1\"\nA=\"$A --tp 4\"\neval \"run.py $A\"", "4"),
        ("CMD=\"torchrun run.py --tp 4\"\n$CMD", "4"),
        ("srun -l --gpus 8 bash -c \"cd x; torchrun run.py --tp 4\"", "4"),
        ("train() { torchrun run.py --tp $1 \"${@:2}\"; }\ntrain 4", "4"),
        ("declare -A T=([8b]=1 [70b]=8)\nS=70b\nrun.py --tp ${T[$S]}", "8"),
        ("for t in 4; do run.py --tp $t; done", "4"),
        ("cat <<EOF > note.txt\n--tp 8 'open\nEOF\nrun.py --tp 4", "4"),
        ("run.py \\\n  --tp 4 \\\n  --lr 1 # the rate", "4"),
        ("--tp 4\n--lr 1", "4"),
        ("export A=\"--tp 4\"\nCUDA=1 python -m torch.distributed.launch run.py $A", "4"),
        ("ARGS=\"--lr 1 --tp 4\"", "4"),
        ("while [ $# -gt 0 ]; do case $1 in --t) T=$2;; esac; shift; done\nT=${T:-4}\nrun.py --tp $T", "4"),
    ],
)  # fmt: skip
def test_a_flag_has_the_value_that_bash_gives_it(script: str, tp: str) -> None:
    assert words(script)["tp"] == tp


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("run.py --tp $TP", r"\$TP is not set in the text; state --set TP=VALUE"),
        ("run.py --tp $1", r"state --set 1=VALUE"),
        ("if [ $S = a ]; then T=1; else T=8; fi\nrun.py --tp $T", r"depends on \$S .line 1.; state --set S"),
        ("case $S in a) TP=1;; *) TP=8;; esac\nrun.py --tp $TP", r"depends on \$S"),
        ("TP=$(nproc)\nrun.py --tp $TP", r"nproc.* is not run"),
    ],
)  # fmt: skip
def test_a_value_that_the_text_does_not_settle_is_refused_with_the_reason(script: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        flags(script).whole("tp")


def test_what_is_stated_settles_a_condition() -> None:
    script = "if [ $S = 8b ]; then TP=1; else TP=8; fi\nrun.py --tp $TP --pp $1"
    assert words(script, S="70b", arg1="2") == {"tp": "8", "pp": "2"}


def test_a_stated_variable_goes_before_the_scripts_own() -> None:
    assert words("TP=2\nrun.py --tp $TP", TP="4")["tp"] == "4"


def test_a_stated_variable_that_nothing_uses_is_an_error() -> None:
    with pytest.raises(BadInput, match='--set "PP": is no variable'):
        flags("run.py --tp 4", PP="2")


def test_a_flag_under_an_open_condition_is_undecided_unless_it_is_harmless() -> None:
    script = "A=(--tp 4)\nif [ $FAST = 1 ]; then A+=(--fp8 hybrid --wandb x); fi\nrun.py ${A[@]}"
    assert [*flags(script, harmless=("wandb",)).undecided] == ["fp8"]
    assert not flags(script, harmless=("wandb", "fp8")).undecided


def test_two_launches_that_differ_are_refused_and_two_that_agree_are_one() -> None:
    with pytest.raises(BadInput, match="lines 1 and 2 differ in --tp"):
        flags("run.py --tp 4\nrun.py --tp 8")
    assert words("if [ $N -gt 1 ]; then srun run.py --tp 4; else run.py --tp 4; fi") == {"tp": "4"}


def test_what_is_taken_for_granted_is_said() -> None:
    script = 'source env.sh\nTP=${TP:-2}\nif [ -n "$FP8" ]; then TP=8; fi\nrun.py --tp $TP $EXTRA_ARGS'
    assert flags(script).notes == (
        "Not set in the text, and taken to be empty: $EXTRA_ARGS (see --set).",
        "Defaults of the script are taken: TP=2 (see --set).",
        "Taken to be unset: FP8 (see --set).",
        "Not read: env.sh, which the script reads.",
    )


def test_flags_of_the_launcher_are_not_those_of_the_program() -> None:
    found = flags("torchrun --nnodes 2 --tp 3 run.py --tp 4")
    assert (found.whole("tp"), found.script) == (4, "run.py")
    assert found.launcher["nnodes"][0].text == "2"


@pytest.mark.parametrize(
    "script", ["X='", 'X="$(', "if true", "case x in", "A=(1", "${", "f() { f; }\nf", "[["]
)
def test_broken_scripts_are_refused_in_one_line(script: str) -> None:
    with pytest.raises(BadInput):
        flags(script + "\nrun.py" if script.endswith("f") else script)


def test_values_do_not_grow_without_end() -> None:
    with pytest.raises(BadInput, match="grows beyond"):
        flags(
            "X=aaaaaaaaaa\nfor i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do X=$X$X; done\nrun.py --tp $X"
        )


def test_places_to_be_filled_in_are_unsettled_and_no_redirections() -> None:
    script = "DATA=<Specify path and file prefix>_text_document\nrun.py --tp 4 --data $DATA --pp <your pp>"
    assert flags(script).whole("tp") == 4
    with pytest.raises(BadInput, match=r"your pp>.* is to be filled in"):
        flags(script).whole("pp")


def test_many_open_conditions_are_kept_apart_in_little_time() -> None:
    lines = [f'if [ "$C{index}" = 1 ]; then A="$A --x{index} 1"; fi' for index in range(60)]
    found = flags("A='--tp 4'\n" + "\n".join(lines) + "\nrun.py $A")
    assert found.whole("tp") == 4
    assert [*found.undecided] == [f"x{index}" for index in range(60)]


def test_conditions_nested_too_deeply_are_not_taken_for_nothing() -> None:
    lines = [f'if [ "$C{index}" = 1 ]; then A="--x{index} 1 $A"; fi' for index in range(40)]
    assert flags("A='--tp 4'\n" + "\n".join(lines) + "\nrun.py --tp 4 $A").undecided


def test_lines_may_end_as_on_windows() -> None:
    assert words("TP=4\r\nrun.py --tp $TP \\\r\n --lr 1\r\n") == {"tp": "4", "lr": "1"}


def test_a_program_whose_folder_is_not_known_is_known_by_its_name() -> None:
    assert flags('D=$(pwd)\ntorchrun "$D/pretrain_bert.py" --tp 4').script.endswith("/pretrain_bert.py")
