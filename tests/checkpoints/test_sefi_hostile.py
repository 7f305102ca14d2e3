"""Directories of SeFi-Image that somebody damaged, by accident or not: one line each, soon, and nothing is executed."""

import json

import pytest
import yaml

import lwd
from lwd.checkpoints.sefi import load_sefi
from lwd.checkpoints.sefi_config import MAX_ALIASES, MAX_BYTES, read_config
from messages import exit_code, says
from sefi import NAME, settings, write_model

INDEX = f"{NAME}.safetensors.index.json"


def nested(line, levels=16):
    """Lines a1, a2, ... that each name the one before several times."""
    return "\n".join(f"a{n}: " + line.replace("N", str(n)).replace("M", str(n - 1)) for n in range(1, levels + 1))


NINE = ", ".join(["*aM"] * 9)
ROWS, MERGED = nested(f"&aN [{NINE}]", 30), nested(f"&aN {{<<: [{NINE}]}}", 30)
LEVELS, WIDE = nested('"${aM}${aM}x"'), nested("[" + ", ".join(["'${aM}'"] * 9) + "]")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (f"a0: &a0 [x]\n{ROWS}", (MAX_ALIASES,)),
        (f"a0: &a0 {{k: x}}\n{MERGED}", (MAX_ALIASES,)),
        (f"a0: {'x' * 100}\n{LEVELS}\nmodel: {{model_name: '${{a16}}'}}", (4096,)),
        (f"a0: x\n{WIDE}\nmodel: '${{a16}}'", (100000,)),
        ("model: &m {semantic_channels: 4, again: *m}", ("YAML",)),
        ("model: {semantic_channels: '${model}', more: '${model}', name: '${model}'}", ("values",)),
        ("[" * 5000, ("YAML",)),
        ("model: 2026-99-99", ("YAML",)),
        ("a: " + "x" * MAX_BYTES, (MAX_BYTES,)),
        ("model: !!python/object/apply:os.system ['exit 1']", ("YAML",)),
        ("- model", ("sections",)),
        ("", ("sections",)),
    ],
)
def test_configurations_that_stand_for_more_than_they_are(tmp_path, text, facts):
    """Oracle: an error that names the file, instead of a computer without memory."""
    path = tmp_path / "sefi_config.yaml"
    path.write_text(text)
    with pytest.raises(lwd.InputError, match=says("sefi_config.yaml", *facts)) as error:
        read_config(path)
    assert "\n" not in str(error.value)


def test_a_few_aliases_are_read(tmp_path):
    """Oracle: the value that the alias stands for."""
    value = settings()
    value["inference"] = {"steps": 7}
    text = yaml.safe_dump(value) + "other: &seven 7\nagain: *seven\n"
    (tmp_path / "sefi_config.yaml").write_text(text)
    assert read_config(tmp_path / "sefi_config.yaml").inference.steps == 7


def change_index(root, change):
    path = root / "transformer" / INDEX
    path.write_text(change(path.read_text()))


def outside(text):
    value = json.loads(text)
    first = next(iter(value["weight_map"]))
    value["weight_map"][first] = "../transformer/secret.safetensors"
    return json.dumps(value)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda text: text[: len(text) // 2], (INDEX,)),
        (lambda _: "", (INDEX,)),
        (lambda _: "[]", (INDEX, "weight_map")),
        (lambda _: '{"weight_map": {"a": 3}}', ("3", INDEX)),
        (outside, ("../transformer/secret.safetensors",)),
        (lambda text: text.replace("00002-of", "00009-of"), (f"{NAME}-00009-of-00002.safetensors",)),
        (lambda text: text.replace("backbone.proj_out.weight", "backbone.other"), ("backbone.other",)),
    ],
)
def test_an_index_that_lies(tmp_path, change, facts):
    """Oracle: the index or the shard by name; files outside the directory are not opened."""
    root = write_model(tmp_path, 2)
    change_index(root, change)
    with pytest.raises(lwd.InputError, match=says(*facts)) as error:
        load_sefi(root)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"model": {"transformer_scale": "7b"}}, ("sefi_config.yaml", "7b", "9b")),
        ({"model": {"transformer_scale": "1b"}}, ("backbone.proj_out.weight", "(12, 32)", "(12, 2048)")),
        ({"model": {"semantic_channels": "many"}}, ("sefi_config.yaml", "semantic_channels", "many")),
    ],
)
def test_the_command_says_it_in_one_line(tmp_path, capsys, changes, facts):
    """Oracle: exit code 2, and the same facts as from the library."""
    write_model(tmp_path / "model", **changes)
    command = ["sample", "--model", tmp_path / "model", "--prompt", "apple", "--device", "cpu", "--out", tmp_path / "x"]
    assert exit_code(command) == 2
    line = capsys.readouterr().err.strip()
    assert says(*facts).match(line)
    assert "\n" not in line
