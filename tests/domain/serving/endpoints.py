"""References that try to reach what no endpoint is, and terms to try them under."""

from __future__ import annotations

from ipaddress import ip_network

from domain.serving.endpoint import EndpointTerms

PRIVATE = EndpointTerms(
    hosts=("*.models.example.net", "gpu-7", "xn--mnchen-3ya.example.net"),
    networks=(ip_network("10.20.0.0/16"), ip_network("fd12:3456::/32")),
    ports=(443, 8443, 11434),
    plain_http=True,
)
# The widest that an operator could write: what is never allowed stays refused under it.
WIDE = EndpointTerms(
    hosts=("*", "localhost", "metadata", "instance-data"),
    networks=(ip_network("0.0.0.0/0"), ip_network("::/0")),
    ports=tuple(range(1, 65_536)),
    plain_http=True,
)

NEVER_ADDRESSES = (
    *("169.254.169.254", "169.254.170.2", "169.254.0.1", "0.0.0.0", "0.1.2.3", "224.0.0.1", "239.1.2.3"),
    *("255.255.255.255", "240.0.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("::", "fe80::1", "febf::1", "ff02::1", "fec0::1", "fd00:ec2::254", "fd20:ce::254"),
    *("::ffff:169.254.169.254", "::ffff:127.0.0.1", "::ffff:10.20.0.5", "::ffff:0:7f00:1", "::7f00:1"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:1::1"),
)
PRIVATE_ADDRESSES = (
    *("127.0.0.1", "127.255.255.254", "10.0.0.1", "10.21.0.1", "172.16.0.1", "172.31.255.255"),
    *("192.168.1.1", "100.64.0.1", "198.18.0.1", "::1", "fc00::1", "fd00::1", "2001:db8::1"),
)


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


# Not one of these is registered, whatever the terms are.
NEVER_REFERENCES = (
    *(f"https://{_host(address)}/" for address in NEVER_ADDRESSES),
    *(f"http://{_host(address)}:80/latest/meta-data" for address in NEVER_ADDRESSES),
    # Numbers that some resolvers read as an address.
    *("https://2130706433/", "https://0x7f000001/", "https://0x7f.0.0.1/", "https://017700000001/"),
    *("https://0177.0.0.1/", "https://127.1/", "https://127.0.1/", "https://2852039166/", "https://0/"),
    *("https://0xa9fea9fe/", "https://0251.0376.0251.0376/", "https://169.254.43518/", "https://1.2.3.04/"),
    *("https://example.0x7f/", "https://example.1/", "https://256.1.1.1/", "https://1.2.3.4.5/"),
    # Addresses in another form than their plain one.
    *("https://[0:0:0:0:0:0:0:1]/", "https://[::ffff:7f00:1]/", "https://[0::1]/", "https://[::1%25lo]/"),
    *("https://[fe80::1%25eth0]/", "https://[::]/", "https://[:]/", "https://[]/", "https://[127.0.0.1]/"),
    # Names that mean the host itself or its metadata.
    *(
        "https://localhost/",
        "https://a.localhost/",
        "https://localhost.localdomain/",
        "https://instance-data/",
    ),
    *("https://metadata.google.internal/", "https://metadata.goog/", "https://instance-data.ec2.internal/"),
    # Someone else's host behind a familiar one.
    *(
        "https://a.models.example.net@evil.example/",
        "https://a@127.0.0.1/",
        "https://u:p@a.models.example.net/",
    ),
    *("https://a.models.example.net:p@169.254.169.254/", "https://@a.models.example.net/"),
    *("https://a.models.example.net\\@evil.example/", "https:\\\\evil.example/", "https://a\\.evil.example/"),
    *("https://a.models.example.net#@evil.example/", "https://a.models.example.net?@evil.example/"),
    *(
        "https://a.models.example.net/#x",
        "https://a.models.example.net/?x=1",
        "https://a.models.example.net/a;b",
    ),
    # Names that look like others.
    *("https://a.models.example.net./", "https://a..models.example.net/", "https://.models.example.net/"),
    *(
        "https://a.mod\u0435ls.example.net/",
        "https://a.models.example\u3002net/",
        "https://\u2460.example.net/",
    ),
    *(
        "https://xn--80ak6aa92e.example.net/",
        "https://a.xn--models-example.net/",
        "https://A.models.example.net/",
    ),
    *("https://-a.models.example.net/", "https://a-.models.example.net/", "https://a_b.models.example.net/"),
    *("https://a%2emodels.example.net/", "https://a.models.example.net%00.evil.example/", "https://%6c/"),
    f"https://{'a' * 64}.models.example.net/",
    f"https://{'a.' * 120}models.example.net/{'b' * 60}",
    # Another scheme, or none.
    *("ftp://a.models.example.net/", "file:///etc/passwd", "gopher://a.models.example.net:70/_x"),
    *(
        "ldap://a.models.example.net/",
        "javascript://a.models.example.net/",
        "data:text/plain,x",
        "//a.example.net/",
    ),
    *(
        "a.models.example.net",
        "/etc/passwd",
        "https:/a.models.example.net",
        "https://",
        "https:///x",
        "",
        " ",
    ),
    *(
        "HTTPS://a.models.example.net/",
        "vllm+https://a.models.example.net/",
        "+https://a.models.example.net/",
    ),
    *("ollama+openai+https://a.models.example.net/", "ollama+ftp://a.models.example.net/", "unix:///run/x"),
    # Another port, or none that is one.
    *(
        "https://a.models.example.net:/",
        "https://a.models.example.net:0/",
        "https://a.models.example.net:65536/",
    ),
    *(
        "https://a.models.example.net:-1/",
        "https://a.models.example.net:443:80/",
        "https://a.example.net:0443/",
    ),
    *("https://a.models.example.net:\uff14\uff14\uff13/", "https://a.models.example.net:443@evil.example/"),
    # Lines and spaces, which would end a header or a log line.
    *(
        "https://a.models.example.net/\r\nHost: evil",
        "https://a.models.example.net\n",
        "\thttps://a.example.net/",
    ),
    *(
        "https://a.models.example.net /",
        " https://a.models.example.net/",
        "https://a.models.example.net/%0d%0aX",
    ),
    *(
        "https://a.models.example.net/\x00",
        "https://a\u200b.models.example.net/",
        "https://a.models.example.net/\u2028",
    ),
    # Paths that leave their place.
    *(
        "https://a.models.example.net/../admin",
        "https://a.models.example.net/a/../..",
        "https://a.example.net/./a",
    ),
    *("https://a.models.example.net//evil.example/", "https://a.models.example.net/%2e%2e/admin"),
    f"https://a.models.example.net/{'a' * 300}",
)
# Refused unless the terms open a network, a name, a port or http for them.
CLOSED_REFERENCES = (
    *(f"https://{_host(address)}/" for address in PRIVATE_ADDRESSES),
    *(
        "https://1.1.1.1/",
        "https://[2606:4700:4700::1111]/",
        "https://gpu-7/",
        "http://a.models.example.net/",
    ),
    *(
        "https://a.models.example.net:22/",
        "https://a.models.example.net:6379/",
        "https://a.models.example.net:5432/",
    ),
)
