"""Stored form of objects in etcd, for backup and migration."""

from __future__ import annotations

import asyncio

from kube_api_server.storage.etcd import address as addresses
from kube_api_server.storage.etcd.client import EtcdClient
from kube_api_server.storage.etcd.store import OBJECTS, OFFSET, PROGRESS_KEY
from kube_api_server.storage.names import Storage


async def read_etcd(storage: Storage) -> tuple[int, list[tuple[str, int, bytes]]]:
    """Return the revision, and key, revision and value of every object."""
    address = addresses.parse_etcd_address(storage.address, storage.names)
    root = address.prefix.encode()
    async with EtcdClient(address) as client:
        _, pairs = await client.list_all(root + OFFSET)
        offset = int(pairs[0].value) if pairs else 0
        revision, items = await client.list_all(root + OBJECTS)
    prefix = root + OBJECTS
    objects = [
        (item.key[len(prefix) :].decode(), item.revision + offset, item.value)
        for item in items
        if not item.key.endswith(PROGRESS_KEY)
    ]
    return revision + offset, objects


async def restore_etcd(
    storage: Storage,
    offset: int,
    objects: list[tuple[str, bytes]],
    max_concurrent: int,
) -> bool:
    """Write objects with revisions above `offset`. Return False if the prefix is not empty."""
    address = addresses.parse_etcd_address(storage.address, storage.names)
    root = address.prefix.encode()
    async with EtcdClient(address) as client:
        if (await client.list_all(root + OBJECTS))[1]:
            return False
        if await client.put(root + OFFSET, str(offset).encode(), 0) is None:
            return False
        slots = asyncio.Semaphore(max_concurrent)

        async def put(key: str, value: bytes) -> None:
            async with slots:
                await client.put(root + OBJECTS + key.encode(), value, 0)

        async with asyncio.TaskGroup() as group:
            for key, value in objects:
                group.create_task(put(key, value))
    return True
