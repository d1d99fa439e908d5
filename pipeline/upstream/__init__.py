"""Other servers as upstreams: their settings, the requests that go to them, which one is asked, what they tell.

    settings ─▶ Pool ─choose, retry, health─▶ Upstream ─client─▶ Exchange ─reads─▶ reader
                                                 └─probe: who is it, what does it tell─▶ Known

The HTTP client is aiohttp (docs/adr/0011), so that what uses it runs on asyncio only.
"""
