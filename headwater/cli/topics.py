"""`headwater topics`: list, create, describe, alter and delete topics."""

from typing import Annotated

import typer

from headwater.cli import options
from headwater.cli.output import note, print_heading, print_json, print_table, say

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
Configs = Annotated[
    list[str] | None,
    typer.Option(
        "--config", "-c", metavar="KEY=VALUE", help="A topic configuration to set; may be repeated."
    ),
]


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="topics")


@app.callback()
def topics() -> None:
    """List, create, describe, alter and delete topics."""


@app.command("list")
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="Also those that Kafka keeps for itself.")
    ] = False,
    json: options.Json = False,
    bootstrap: options.Bootstrap = None,
    config_file: options.ConfigFile = None,
    properties: options.Properties = None,
) -> None:
    """List the topics and how many partitions they have.

    \b
    Examples:
      headwater topics list
      headwater topics list --json | jq -r .topic
    """
    connection = options.connect(bootstrap, config_file, properties)
    from headwater.client.admin import Admin

    found = Admin(connection).topics(internal=internal)
    if json:
        for topic in found:
            print_json({"topic": topic.name, "partitions": topic.partitions, "internal": topic.internal})
    elif found:
        print_table(("topic", "partitions"), [(topic.name, topic.partitions) for topic in found])
    else:
        note("no topics yet; create one with `headwater topics create NAME`")


@app.command("create")
def create(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            metavar="N",
            min=1,
            help="How many partitions; the broker decides when not given.",
        ),
    ] = None,
    replication: Annotated[
        int | None,
        typer.Option(
            "--replication",
            metavar="N",
            min=1,
            help="Copies of each partition; the broker decides when not given.",
        ),
    ] = None,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="It is no failure when the topic is there already.")
    ] = False,
    json: options.Json = False,
    bootstrap: options.Bootstrap = None,
    config_file: options.ConfigFile = None,
    properties: options.Properties = None,
) -> None:
    """Create a topic.

    \b
    Examples:
      headwater topics create orders --partitions 4
      headwater topics create customers --config cleanup.policy=compact
    """
    connection = options.connect(bootstrap, config_file, properties)
    from headwater.client.admin import Admin
    from headwater.client.settings import parse_pairs

    admin = Admin(connection)
    created = admin.create_topic(
        name,
        partitions,
        replication=replication,
        configs=parse_pairs(config or (), "--config"),
        exist_ok=if_not_exists,
    )
    count = len(admin.partitions(name, "describe"))
    if json:
        print_json({"topic": name, "partitions": count, "created": created})
    elif created:
        say(f"created {name} with {_partitions(count)}")
    else:
        say(f"{name} is there already, with {_partitions(count)}")


@app.command("describe")
def describe(
    name: Name,
    all_: Annotated[
        bool, typer.Option("--all", help="All configurations, not only those that differ from the default.")
    ] = False,
    json: options.Json = False,
    bootstrap: options.Bootstrap = None,
    config_file: options.ConfigFile = None,
    properties: options.Properties = None,
) -> None:
    """Show a topic's partitions, with their offsets, and its configuration.

    `records` counts offsets: after compaction, and with transactions, there are fewer records than that.

    \b
    Examples:
      headwater topics describe orders
      headwater topics describe orders --all --json
    """
    connection = options.connect(bootstrap, config_file, properties)
    from headwater.client.admin import Admin, both_ends

    admin = Admin(connection)
    topic = admin.topic(name)
    ends = both_ends(admin, [(name, partition.number) for partition in topic.partitions])
    configs = [config for config in admin.configs(name) if all_ or not config.is_default]
    if json:
        print_json(
            {
                "topic": topic.name,
                "id": topic.id,
                "internal": topic.internal,
                "partitions": [
                    {
                        "partition": partition.number,
                        "leader": partition.leader,
                        "replicas": partition.replicas,
                        "in_sync": partition.in_sync,
                        "earliest": ends[name, partition.number][0],
                        "latest": ends[name, partition.number][1],
                        "records": ends[name, partition.number][1] - ends[name, partition.number][0],
                    }
                    for partition in topic.partitions
                ],
                "configs": [
                    {"name": config.name, "value": config.value, "source": config.source}
                    for config in configs
                ],
            }
        )
        return
    print_heading(f"{topic.name}: {_partitions(len(topic.partitions))}, id {topic.id}")
    rows = []
    for partition in topic.partitions:
        first, last = ends[name, partition.number]
        in_sync = f"{len(partition.in_sync)} of {len(partition.replicas)}"
        rows.append((partition.number, partition.leader, in_sync, first, last, last - first))
    print_table(("partition", "leader", "in sync", "earliest", "latest", "records"), rows, kind="partition")
    if configs:
        print_heading("configuration" if all_ else "configuration that differs from the default")
        print_table(
            ("name", "value", "set by"),
            [(config.name, config.value, config.source) for config in configs],
            kind="config",
        )


@app.command("alter")
def alter(
    name: Name,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", metavar="N", min=1, help="The new number; it can only grow."),
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="A configuration to put back to its default."),
    ] = None,
    json: options.Json = False,
    bootstrap: options.Bootstrap = None,
    config_file: options.ConfigFile = None,
    properties: options.Properties = None,
) -> None:
    """Change a topic's configuration, or give it more partitions.

    More partitions change the partition of most keys: records written before and after do not lie together.

    \b
    Examples:
      headwater topics alter orders --config retention.ms=86400000
      headwater topics alter orders --partitions 8 --delete-config retention.ms
    """
    connection = options.connect(bootstrap, config_file, properties)
    from headwater.client.admin import Admin
    from headwater.client.settings import parse_pairs
    from headwater.errors import BadInput

    new_values = parse_pairs(config or (), "--config")
    if partitions is None and not new_values and not delete_config:
        raise BadInput(
            "alter", name, "nothing to change was given", "Give --partitions, --config, --delete-config."
        )
    admin = Admin(connection)
    admin.partitions(name, "alter")
    if new_values or delete_config:
        admin.alter_configs(name, new_values, delete_config or ())
    if partitions is not None:
        admin.add_partitions(name, partitions)
    if json:
        print_json({"topic": name, "partitions": partitions, "set": new_values, "unset": delete_config or []})
        return
    done = [f"{key}={value}" for key, value in new_values.items()]
    done += [f"{key} back to its default" for key in delete_config or ()]
    done += [_partitions(partitions)] if partitions is not None else []
    say(f"altered {name}: {', '.join(done)}")


@app.command("delete")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC", help="The topics to delete.")],
    yes: options.Yes = False,
    json: options.Json = False,
    bootstrap: options.Bootstrap = None,
    config_file: options.ConfigFile = None,
    properties: options.Properties = None,
) -> None:
    """Delete topics with all their records; on a terminal it asks first.

    When one of the topics is not there, nothing is deleted.

    \b
    Examples:
      headwater topics delete orders
      headwater topics delete scratch-1 scratch-2 --yes
    """
    connection = options.connect(bootstrap, config_file, properties)
    from headwater.client.admin import Admin

    admin = Admin(connection)
    names = list(dict.fromkeys(names))
    for name in names:
        admin.partitions(name, "delete")
    options.confirm(f"Delete {', '.join(names)} with all records?", yes)
    for name in names:
        admin.delete_topic(name)
        if json:
            print_json({"topic": name, "deleted": True})
        else:
            say(f"deleted {name}")


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"
