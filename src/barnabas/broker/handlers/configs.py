"""DescribeConfigs v1-4, AlterConfigs v0-2 (replaces all) and IncrementalAlterConfigs v0-1 (changes some).

ListConfigResources v0-1: what has settings. Version 0 asks for client metrics alone, of which there are none here.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.network.connection import Connection
from barnabas.broker.router import handles
from barnabas.cluster.configs import ALL_BROKERS, Alteration, Operation, Row, altered, checked_broker_configs
from barnabas.cluster.controller import configure_topic
from barnabas.cluster.image import BrokersConfigured, Change, ClusterImage
from barnabas.config import broker_settings, topic_settings
from barnabas.errors import Code, Refused
from barnabas.wire.apis import ApiKey
from barnabas.wire.frames import RequestHeader
from barnabas.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

log = logging.getLogger("barnabas.configs")


class Resource(IntEnum):
    """What has settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Wish(NamedTuple):
    """Other settings for one resource: on top of those it has, or `afresh` in their place."""

    kind: int
    name: str
    alterations: Sequence[Alteration]
    afresh: bool


@handles(ApiKey.DESCRIBE_CONFIGS)
def describe_configs(
    broker: "Broker", request: DescribeConfigsRequest, peer: Connection
) -> DescribeConfigsResponse:
    results = []
    for wanted in request.resources:
        result = DescribeConfigsResult(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
        try:
            keys = wanted.configuration_keys
            result.configs = [
                _described(row, request.include_synonyms, request.include_documentation)
                for row in _rows(broker, wanted)
                if keys is None or row.name in keys
            ]
        except Refused as refused:
            broker.note_refusal("DescribeConfigs", refused, wanted.resource_name)
            result.error_code, result.error_message = refused.code, refused.message
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _rows(broker: "Broker", wanted: DescribeConfigsResource) -> Sequence[Row]:
    image = broker.metadata.image
    match wanted.resource_type:
        case Resource.TOPIC:
            topic = image.topics.get(wanted.resource_name)
            if topic is None:
                raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
            return list(broker.levels(image).topic(topic))
        case Resource.BROKER if wanted.resource_name == ALL_BROKERS:
            return list(broker.levels(image).all_brokers())
        case Resource.BROKER:
            _check_broker(broker, wanted.resource_name)
            return list(broker.levels(image).broker())
        case kind:
            raise Refused(
                Code.INVALID_REQUEST,
                f"The request is invalid: resources of type {kind} have no settings here.",
            )


def _described(row: Row, synonyms: bool, docs: bool) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        row.name, row.value, row.read_only, row.source, config_type=row.kind
    )
    if synonyms:
        result.synonyms = [DescribeConfigsSynonym(o.name, o.value, o.source) for o in row.origins]
    if docs:
        result.documentation = row.doc
    return result


def _nothing_altered(
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest, version: int, refused: Refused
) -> AlterConfigsResponse | IncrementalAlterConfigsResponse:
    """What all are told where no controller could be asked."""
    rows = [
        AlterConfigsResourceResponse(refused.code, refused.message, one.resource_type, one.resource_name)
        for one in request.resources
    ]
    if isinstance(request, AlterConfigsRequest):
        return AlterConfigsResponse(responses=rows)
    return IncrementalAlterConfigsResponse(responses=rows)


@handles(ApiKey.ALTER_CONFIGS, _nothing_altered, by_controller=True)
async def alter_configs(
    broker: "Broker", request: AlterConfigsRequest, peer: Connection
) -> AlterConfigsResponse:
    wishes = [
        Wish(
            resource.resource_type,
            resource.resource_name,
            [Alteration(config.name, Operation.SET, config.value) for config in resource.configs],
            afresh=True,
        )
        for resource in request.resources
    ]
    rows = await _alter(broker, "AlterConfigs", wishes, request.validate_only)
    return AlterConfigsResponse(responses=rows)


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, _nothing_altered, by_controller=True)
async def incremental_alter_configs(
    broker: "Broker", request: IncrementalAlterConfigsRequest, peer: Connection
) -> IncrementalAlterConfigsResponse:
    wishes = [
        Wish(
            resource.resource_type,
            resource.resource_name,
            [Alteration(config.name, config.config_operation, config.value) for config in resource.configs],
            afresh=False,
        )
        for resource in request.resources
    ]
    rows = await _alter(broker, "IncrementalAlterConfigs", wishes, request.validate_only)
    return IncrementalAlterConfigsResponse(responses=rows)


async def _alter(
    broker: "Broker", api: str, wishes: Sequence[Wish], validate_only: bool
) -> list[AlterConfigsResourceResponse]:
    named = Counter((wish.kind, wish.name) for wish in wishes)
    rows = []
    for wish in wishes:
        row = AlterConfigsResourceResponse(resource_type=wish.kind, resource_name=wish.name)
        try:
            _check_once(wish, named[wish.kind, wish.name])
            await _alter_one(broker, wish, validate_only)
        except Refused as refused:
            broker.note_refusal(api, refused, wish.name)
            row.error_code, row.error_message = refused.code, refused.message
        rows.append(row)
    return rows


def _check_once(wish: Wish, times: int) -> None:
    """Two wishes for one thing contradict each other: which is meant is not known."""
    if times > 1:
        raise Refused(
            Code.INVALID_REQUEST, f"The request is invalid: {wish.name!r} is named {times} times in it."
        )
    for name, count in Counter(alteration.name for alteration in wish.alterations).items():
        if count > 1:
            raise Refused(
                Code.INVALID_REQUEST,
                f"The request is invalid: {name} is given {count} times for {wish.name!r}.",
            )


async def _alter_one(broker: "Broker", wish: Wish, validate_only: bool) -> None:
    if validate_only:
        _decided(broker, broker.metadata.image, wish)
        return
    await broker.metadata.change(lambda image: _decided(broker, image, wish))
    log.info("changed the settings of %s %s", Resource(wish.kind).name.lower(), wish.name or "(all)")


def _decided(broker: "Broker", image: ClusterImage, wish: Wish) -> list[Change]:
    """What is to be stored: nothing where all is so already, as for tools that take off what is not set."""
    match wish.kind:
        case Resource.TOPIC:
            topic = image.topics.get(wish.name)
            if topic is None:
                raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
            configs = altered({} if wish.afresh else topic.configs, wish.alterations, topic_settings())
            changes = configure_topic(image, wish.name, configs, broker.config)
            return changes if configs != topic.configs else []
        case Resource.BROKER:
            if wish.name != ALL_BROKERS:
                _check_live(image, wish.name)
            current = image.broker_configs.get(wish.name, {})
            configs = altered({} if wish.afresh else current, wish.alterations, broker_settings())
            changed = BrokersConfigured(wish.name, checked_broker_configs(configs))
            return [changed] if configs != current else []
        case kind:
            raise Refused(
                Code.INVALID_REQUEST,
                f"The request is invalid: resources of type {kind} have no settings here.",
            )


def _check_broker(broker: "Broker", name: str) -> None:
    if name != str(broker.id):
        raise Refused(
            Code.INVALID_REQUEST, f"The request is invalid: this is broker {broker.id}, not {name!r}."
        )


def _check_live(image: ClusterImage, name: str) -> None:
    """The controller changes the settings of every broker that there is."""
    if name not in map(str, image.brokers):
        raise Refused(
            Code.INVALID_REQUEST, f"The request is invalid: there is no broker {name!r} in the cluster."
        )


@handles(ApiKey.LIST_CONFIG_RESOURCES, with_header=True)
def list_config_resources(
    broker: "Broker", request: ListConfigResourcesRequest, peer: Connection, header: RequestHeader
) -> ListConfigResourcesResponse:
    if header.api_version == 0:
        return ListConfigResourcesResponse()
    image = broker.metadata.image
    brokers = list(map(str, image.brokers))
    names: dict[int, Iterable[str]] = {
        Resource.TOPIC: image.topics,
        Resource.BROKER: brokers,
        Resource.BROKER_LOGGER: brokers,
        Resource.CLIENT_METRICS: (),
        Resource.GROUP: (),
    }
    wanted = dict.fromkeys(request.resource_types) or names
    if any(kind not in names for kind in wanted):
        raise Refused(Code.UNSUPPORTED_VERSION)
    rows = [ConfigResource(name, kind) for kind in wanted for name in names[kind]]
    return ListConfigResourcesResponse(config_resources=rows)
