"""Which IP addresses may be called for strangers."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from server.lib.http_client.public_addresses import is_public

PUBLIC = (
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "93.184.216.34",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "168.63.129.15",
    "168.63.129.17",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "191.255.255.255",
    "192.0.1.0",
    "192.0.3.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "203.0.112.255",
    "203.0.114.0",
    "223.255.255.255",
    "2001:200::",
    "2001:4860:4860::8888",
    "2606:4700:4700::1111",
    "2a00:1450:4001:81b::200e",
    "2003::1",
    "2620:4f:7fff::1",
    "2a00::5efd:a00:1",
    "2a00::5efe:808:808",  # ISATAP to a public address
    "64:ff9b::8.8.8.8",  # what a network without IPv4 resolves 8.8.8.8 to
)

NOT_PUBLIC = (
    # IPv4
    "0.0.0.0",
    "0.0.0.1",
    "0.255.255.255",
    "10.0.0.0",
    "10.255.255.255",
    "100.64.0.0",
    "100.100.100.200",  # metadata of a cloud
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",  # host of a cloud
    "169.254.0.1",
    "169.254.169.254",  # metadata of most clouds
    "169.254.170.2",
    "172.16.0.0",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",  # metadata of a cloud
    "192.0.2.1",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.1",
    "192.168.0.1",
    "192.168.255.255",
    "192.175.48.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.255",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    # IPv6
    "::",
    "::1",
    "100::1",  # discard only
    "100:0:0:1::1",
    "1fff:ffff::1",
    "2001:2::1",  # benchmarking
    "2001:3::1",
    "2001:4:112::1",
    "2001:10::1",
    "2001:20::1",
    "2001:30::1",
    "2001:1ff:ffff::1",
    "2001:db8::1",
    "2620:4f:8000::1",
    "3fff::1",
    "3fff:fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",  # metadata of a cloud
    "fd20:ce::254",  # and of another
    "fdff:ffff::1",
    "fe80::1",
    "fe80::1%1",
    "2a00:1450:4001:81b::200e%1",
    "fec0::1",  # site-local
    "ff02::1",
    "ff0e::1",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    # IPv4 inside IPv6
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:8.8.8.8",  # nobody has a reason to publish one
    "::127.0.0.1",
    "::7f00:1",
    "::8.8.8.8",
    "::ffff:0:127.0.0.1",  # translated
    "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b::168.63.129.16",
    "64:ff9b::100.100.100.200",
    "64:ff9b:0:1::8.8.8.8",
    "64:ff9b:1::8.8.8.8",
    "64:ff9b:1::10.0.0.1",
    "2002:7f00:1::",  # 6to4
    "2002:a00:1::1",
    "2002:a9fe:a9fe::",
    "2002:808:808::1",
    "2001:0:7f00:1::",  # Teredo, by its server
    "2001:0:4136:e378:8000:63bf:80ff:fffe",  # by its client: 127.0.0.1, inverted
    "2001:0:808:808:0:0:f7f7:f7f7",
    "2a00::5efe:10.0.0.1",  # ISATAP
    "2a00::5efe:127.0.0.1",
    "2a00::200:5efe:169.254.169.254",
    "2a00:1:2:3:0:5efe:c0a8:1",
    "2a00:1:2:3:200:5efe:7f00:1",
    "fe80::5efe:8.8.8.8",
)


@pytest.mark.parametrize("text", PUBLIC)
def test_an_address_that_is_routed_to_everybody_is_public(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_every_other_address_is_not(text: str) -> None:
    assert not is_public(ip_address(text))


def test_nothing_is_public_that_the_interpreter_knows_to_be_private() -> None:
    """An independent list: the other way round does not hold, ours is stricter."""
    for value in range(0, 2**32, 2**32 // 60_000):
        address = IPv4Address(value)
        assert not is_public(address) or address.is_global, address
    for value in range(0, 2**128, 2**128 // 60_000):
        address = IPv6Address(value)
        assert not is_public(address) or address.is_global, address
