"""Promises of `barnabas topic` and `barnabas config`."""

from tests.cli.conftest import Run


def test_a_topic_is_created_listed_described_altered_and_deleted(barnabas: Run, topic: str) -> None:
    made = barnabas("topic", "create", topic, "--partitions", "2", "--config", "retention.ms=60000")
    assert made == (0, f"Created topic {topic}.\n", "")
    assert topic in barnabas("topic", "list").out.split()

    head, *partitions = barnabas("topic", "describe", topic).out.splitlines()
    fields = dict(part.split(": ") for part in head.split("\t"))
    assert fields["Topic"] == topic
    assert len(fields["TopicId"]) == 22
    assert (fields["PartitionCount"], fields["ReplicationFactor"]) == ("2", "1")
    assert fields["Configs"] == "retention.ms=60000"
    for number, line in enumerate(partitions):
        found = dict(part.split(": ") for part in line.strip().split("\t"))
        assert (found["Topic"], found["Partition"]) == (topic, str(number))
        assert found["Leader"] == found["Replicas"] == found["Isr"]

    altered = barnabas(
        "topic",
        "alter",
        topic,
        "--partitions",
        "3",
        "--config",
        "segment.ms=120000",
        "--delete-config",
        "retention.ms",
    )
    assert altered == (0, f"Altered topic {topic}.\n", "")
    described = barnabas("topic", "describe", topic).out
    assert "PartitionCount: 3" in described
    assert "Configs: segment.ms=120000" in described

    assert barnabas("topic", "delete", topic) == (0, f"Deleted topic {topic}.\n", "")
    assert topic not in barnabas("topic", "list").out.split()


def test_what_is_there_already_or_not_there_is_one_sentence(barnabas: Run, topic: str) -> None:
    absent = barnabas("topic", "describe", topic)
    assert (absent.code, absent.out) == (1, "")
    assert absent.err.startswith(f"barnabas: Topic '{topic}'")
    assert absent.err.count("\n") == 1
    assert barnabas("topic", "delete", topic).code == 1
    assert barnabas("topic", "delete", topic, "--if-exists").code == 0
    assert barnabas("topic", "create", topic).code == 0
    assert barnabas("topic", "create", topic).code == 1
    assert barnabas("topic", "create", topic, "--if-not-exists").code == 0


def test_what_cannot_be_deleted_keeps_no_other_from_it(barnabas: Run, topic: str) -> None:
    barnabas("topic", "create", topic)
    ended = barnabas("topic", "delete", f"{topic}.no", f"{topic}.neither", topic)
    assert (ended.code, ended.out) == (1, f"Deleted topic {topic}.\n")
    first, second = ended.err.splitlines()
    assert first.startswith(f"barnabas: Topic '{topic}.no'")
    assert second.startswith(f"barnabas: Topic '{topic}.neither'")


def test_nothing_to_alter_is_told(barnabas: Run, topic: str) -> None:
    ended = barnabas("topic", "alter", topic)
    assert (ended.code, ended.out) == (2, "")
    assert "nothing to alter" in ended.err


def test_settings_are_shown_and_set(barnabas: Run, topic: str) -> None:
    barnabas("topic", "create", topic)
    ended = barnabas("config", "set", "--topic", topic, "retention.ms=1234567", "compression.type=lz4")
    assert ended == (0, f"Topic '{topic}': changed retention.ms, compression.type.\n", "")
    shown = barnabas("config", "describe", "--topic", topic).out
    assert "retention.ms\t1234567\tDYNAMIC_TOPIC\n" in shown
    assert "compression.type\tlz4\tDYNAMIC_TOPIC\n" in shown
    everything = barnabas("config", "describe", "--topic", topic, "--all").out
    assert "cleanup.policy\tdelete\tDEFAULT\n" in everything
    assert barnabas("config", "set", "--topic", topic, "--delete", "retention.ms").code == 0
    assert "retention.ms" not in barnabas("config", "describe", "--topic", topic).out


def test_settings_that_cannot_be_are_one_sentence(barnabas: Run, topic: str) -> None:
    barnabas("topic", "create", topic)
    for code, *arguments in (
        (1, "--topic", topic, "retention.ms=soon"),
        (1, "--topic", topic, "no.such.setting=1"),
        (2, "--topic", topic, "nonsense"),
        (2, "--topic", topic),
        (2, "retention.ms=1"),
    ):
        ended = barnabas("config", "set", *arguments)
        assert (ended.code, ended.out) == (code, ""), arguments
        assert ended.err.startswith("barnabas: ")
        assert ended.err.count("\n") == 1


def test_a_brokers_settings_are_explained(barnabas: Run, bootstrap: str) -> None:
    from barnabas import Admin

    with Admin(bootstrap) as admin:
        number = admin.describe_cluster().brokers[0].id
    ended = barnabas("config", "describe", "--broker", str(number), "--docs")
    assert ended.code == 0
    rows = {line.split("\t")[0]: line.split("\t") for line in ended.out.splitlines()}
    assert len(rows["num.partitions"]) == 4
    assert rows["num.partitions"][3]
