"""FastMCP's client, which knows the Skills extension: what it lists and gets, and what it reads of it, checked as a host checks it.

usage: python fastmcp_skills.py URL       prints one JSON object. Run with the `fastmcp` environment.
"""

import asyncio
import base64
import hashlib
import json
import sys

from fastmcp import Client
from fastmcp.skills import SkillsClientExtension


async def main(url: str) -> None:
    async with Client(url, extensions=[SkillsClientExtension()]) as client:
        found = {}
        for skill in await client.list_skills():
            assert await client.get_skill(skill.uri) == skill
            for file in skill.resources:
                (content,) = await client.read_resource(file.uri)
                text = getattr(content, "text", None)
                data = base64.b64decode(content.blob) if text is None else text.encode()
                assert len(data) == file.size
                assert f"sha256:{hashlib.sha256(data).hexdigest()}" == file.digest
            found[skill.uri] = [file.uri for file in skill.resources]
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
