"""Defines the texts that keys of the declaration hold: what each may look like."""

from __future__ import annotations

from typing import Annotated

from provision.declaration.spec.model.section import text

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_DOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_PATH = r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._+@-]+)+"
_PATH_RULE = "an absolute path: below '/', without '..', spaces or a trailing '/'"
_FOLDERS = r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._+~-]+)*/?"
_ARMOR = "PGP PUBLIC KEY BLOCK-----"

DriverVersion = Annotated[
    str,
    text(
        r"[1-9][0-9]{2}\.[0-9]{1,3}(\.[0-9]{2})?",
        "a driver version: all parts of the upstream version, without the distribution's revision",
        "550.163.01",
        longest=12,
    ),
]
DriverBranch = Annotated[
    str,
    text("[1-9][0-9]{2}", "a driver branch: the first number of its versions", "550", longest=3),
]
EngineVersion = Annotated[
    str,
    text(
        r"[0-9]{1,3}(\.[0-9]{1,3}){1,3}",
        "an engine's version: all parts of the upstream version, without the package's epoch and revision",
        "2.2.1",
        longest=15,
    ),
]
# No user, query or fragment: no password or token ends up in a declaration, and in the files that are made from it.
RepositoryUrl = Annotated[
    str,
    text(
        rf"(https://({_DOMAIN}|\[[0-9a-f:]+\])(:[1-9][0-9]{{0,4}})?|file://(?=/[A-Za-z0-9]))" + _FOLDERS,
        "a repository's URL: https://HOST/FOLDER or file:///FOLDER, without a user, a password, '..', '?' or '#'",
        "https://mirror.example.com/cuda/debian13/x86_64/",
        longest=255,
        hides="@",  # what stands before it may be a password
    ),
]
RunfileUrl = Annotated[
    str,
    text(
        rf"https://({_DOMAIN}|\[[0-9a-f:]+\])(:[1-9][0-9]{{0,4}})?" + _PATH,
        "a file's URL: https://HOST/FOLDER/FILE, without a user, a password, '..', '?' or '#'",
        "https://mirror.example.com/nvidia/driver.run",
        longest=255,
        hides="@",  # what stands before it may be a password
    ),
]
Sha256 = Annotated[
    str,
    text("[0-9a-f]{64}", "a SHA-256 digest: what `sha256sum FILE` prints", "0123456789abcdef" * 4, longest=64),
]
PublicKey = Annotated[
    str,
    text(
        rf"-----BEGIN {_ARMOR}\n([A-Za-z]+: [ -~]*\n)*\n([A-Za-z0-9+/=]{{1,76}}\n)+-----END {_ARMOR}\n?",
        f"a public key: what `gpg --armor --export KEY` prints, from -----BEGIN {_ARMOR} to its end",
        f"-----BEGIN {_ARMOR}\n\nmDMEZQAAABYJKwYBBAHaRw8BAQdA\n=AAAA\n-----END {_ARMOR}\n",
        longest=65_536,
        hides="",  # a private key that was taken for a public one
    ),
]
# Names and values are written to modprobe.d(5), where a line of its own can run commands.
ParameterName = Annotated[
    str,
    text(
        "NVreg_[A-Za-z0-9_]+",
        "a parameter of the module nvidia: NVreg_ and its name",
        "NVreg_OpenRmEnableUnsupportedGpus",
        longest=64,
    ),
]
ParameterText = Annotated[
    str,
    text(
        r"[A-Za-z0-9_.:,;=/@%+-]+",
        "a parameter's value: letters, digits and _ . : , ; = / @ % + -, without spaces and quotes",
        "RMIntrLockingMode=1",
        longest=255,
    ),
]
WaveName = Annotated[
    str,
    text(_LABEL, "a wave's name: lower-case letters, digits and '-', 63 at most", "canary", longest=63),
]
GateName = Annotated[
    str,
    text(_LABEL, "a gate's name: lower-case letters, digits and '-', 63 at most", "no-alerts", longest=63),
]
GroupName = Annotated[
    str,
    text(
        "[A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_])?",
        "a group's name: as it stands in the inventory",
        "canary",
        longest=253,
    ),
]
HostName = Annotated[
    str,
    text(
        "[A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_])?",
        "a host's name: as it stands in the inventory",
        "build1",
        longest=253,
    ),
]
PrometheusUrl = Annotated[
    str,
    text(
        rf"https?://({_DOMAIN}|\[[0-9a-f:]+\])(:[1-9][0-9]{{0,4}})?" + _FOLDERS,
        "the URL of a Prometheus: https://HOST, with a port and a path if it has them, without a user, '?' or '#'",
        "https://prometheus.example.com",
        longest=255,
        hides="@",  # what stands before it may be a password
    ),
]
Promql = Annotated[
    str,
    text(
        r"[^\x00-\x09\x0b-\x1f\x7f]+",
        "a query in PromQL: up to 2000 characters, as they are typed into Prometheus",
        'ALERTS{alertstate="firing", severity="critical"}',
        longest=2000,
    ),
]
TimeOfDay = Annotated[
    str,
    text("(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)", "a time of day: HH:MM, from 00:00 to 24:00", "22:00", longest=5),
]
# A day, or a minute of it. Whether there is such a day is checked with the other rules.
DayOrMinute = Annotated[
    str,
    text(
        "20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])(T([01][0-9]|2[0-3]):[0-5][0-9])?",
        "a day, or a minute of it: YYYY-MM-DD or YYYY-MM-DDTHH:MM",
        "2026-12-24",
        longest=16,
    ),
]
TimeZone = Annotated[
    str,
    text(
        "[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*",
        "a time zone's name in the IANA database: as in /usr/share/zoneinfo",
        "Europe/Berlin",
        longest=64,
    ),
]
ReasonText = Annotated[
    str,
    text("[^\\x00-\\x1f\\x7f]+", "a line of text", "freeze at the end of the year", longest=200),
]
# RFC 1123 label: names of namespaces and of runtime class handlers.
DnsLabel = Annotated[
    str,
    text(_LABEL, "a DNS label: lower-case letters, digits and '-', 63 at most", "nvidia", longest=63),
]
# Kubernetes wants a domain in an extended resource's name; a name without one is a resource of its own.
ResourceName = Annotated[
    str,
    text(
        rf"{_DOMAIN}\.{_LABEL}/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?",
        "a qualified name: a domain, '/', and a name of 63 letters, digits, '-', '_' or '.' at most",
        "nvidia.com/gpu",
        longest=253,
    ),
]
SharedResourceName = Annotated[
    str,
    text(
        rf"({_DOMAIN}\.{_LABEL}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?",
        "the name of a resource, with a domain or without: 63 letters, digits, '-', '_', '.' and '/' at most",
        "gpu.shared",
        longest=63,
    ),
]
NamePatternText = Annotated[
    str,
    text(
        r"[A-Za-z0-9 ._+*/()-]{1,128}",
        "a product's name or a MIG profile: letters, digits, spaces and . _ + / ( ) -, '*' for anything",
        "*A100*80GB",
    ),
]
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
DeviceId = Annotated[
    str,
    text(
        rf"([0-9]{{1,3}}(:[0-9]{{1,3}})?|(GPU|MIG)-{_UUID})",
        "a GPU or MIG device: its index in quotes, the indices of both, or a UUID",
        "0:1",
    ),
]
GpuId = Annotated[str, text(rf"((0|[1-9][0-9]{{0,2}})|GPU-{_UUID})", "a GPU: its index in quotes, or a UUID", "4")]
_CLASS = "[a-z0-9][a-z0-9-]{0,39}"
DeviceClassName = Annotated[
    str, text(_CLASS, "the name of a device class: 40 small letters, digits and '-' at most", "rdma-shared")
]
DeviceClassSource = Annotated[
    str,
    text(
        rf"({_CLASS}|/?([A-Za-z0-9_][A-Za-z0-9._-]*/)*{_CLASS}\.json)",
        "a device class: one that comes with grapnel, or the path of a file NAME.json, without '..'",
        "rdma-shared",
        longest=255,
    ),
]
ConfigName = Annotated[
    str,
    text(
        r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
        "the name of a configuration, as a label's value: letters, digits, '-', '_' and '.', 63 at most",
        "inference",
    ),
]
LayoutName = Annotated[
    str,
    text(
        r"[A-Za-z0-9]([-A-Za-z0-9_.+]{0,61}[A-Za-z0-9])?",
        "the name of a layout: letters, digits, '-', '_', '.' and '+', 63 at most",
        "all-balanced",
    ),
]
MigProfileName = Annotated[
    str,
    text(
        r"(MIG )?([1-9]c\.)?[1-9]g\.[1-9][0-9]{0,3}gb(\+me|\+gfx|\+me\.all|-me)?",
        "a MIG profile: slices of compute, '.', memory, and '+me', '+me.all', '+gfx' or '-me' where it has that",
        "1g.10gb+me",
    ),
]
_PCI_ID = "0x[0-9A-Fa-f]{4}10[Dd][Ee]"
DeviceFilter = Annotated[
    str,
    text(
        rf"{_PCI_ID}(:0x[0-9A-Fa-f]{{8}})?",
        "a PCI id of NVIDIA: '0x', the device and '10DE', and behind ':' the subsystem's device and vendor",
        "0x233010DE",
    ),
]
LabelKey = Annotated[
    str,
    text(
        rf"({_DOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?",
        "a label key: 63 letters, digits, '-', '_' or '.' at most, which a domain and '/' may precede",
        "example.com/pool",
        longest=317,
    ),
]
LabelValue = Annotated[
    str,
    text(
        f"({_NAME})?",
        "a label value: 63 letters, digits, '-', '_' or '.' at most, or nothing",
        "training",
        longest=63,
    ),
]
_KEY = rf"({_DOMAIN}/)?{_NAME}"
_REQUIREMENT = rf"(!{_KEY}|{_KEY}( *(==?|!=) *({_NAME})?| +(in|notin) *\( *({_NAME})?( *, *({_NAME})?)* *\))?)"
LabelSelector = Annotated[
    str,
    text(
        rf"({_REQUIREMENT}( *, *{_REQUIREMENT})*)?",
        "a label selector: KEY, !KEY, KEY=VALUE, KEY!=VALUE, KEY in (A, B), KEY notin (A, B); ',' joins several",
        "app=training, tier notin (test)",
        longest=1024,
    ),
]
# One for all nodes of a fleet, so it is every address of a node or none but its own.
ListenAddress = Annotated[
    str,
    text(
        r"(0\.0\.0\.0|127\.0\.0\.1|\[::1?\]):"
        r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])",
        "an address and a port: 0.0.0.0, [::], 127.0.0.1 or [::1], ':' and a number up to 65535",
        "0.0.0.0:9400",
    ),
]
ControllerFile = Annotated[
    str,
    text(
        r"/?([A-Za-z0-9_][A-Za-z0-9._-]*/)*[A-Za-z0-9_][A-Za-z0-9._-]*",
        "a path: letters, digits and . _ - /, from the declaration's folder or absolute, without '..'",
        "mig-config.yaml",
        longest=255,
    ),
]
ControllerFilePath = Annotated[str, text(_PATH, _PATH_RULE, "/etc/grapnel/webhook.secret", longest=255)]
WebhookUrl = Annotated[
    str,
    text(
        rf"(https://({_DOMAIN}|\[[0-9a-f:]+\])(:[1-9][0-9]{{0,4}})?|http://(localhost|127\.0\.0\.1)(:[1-9][0-9]{{0,4}})?)"
        r"(/[A-Za-z0-9._~%+-]*)*",
        "a receiver's URL: https://HOST/PATH, or http:// on this machine, without a user, a password, '?' or '#'",
        "https://alerts.example.com/hooks/grapnel",
        longest=255,
        hides="[@?]",  # what stands before and behind it may be a secret
    ),
]
# Run without a shell here; behind ssh another machine's shell reads them, so that what a shell acts on is left out.
CommandArgument = Annotated[
    str,
    text(
        r"([A-Za-z0-9_.,:=@%/+-]|\{node\})+",
        "an argument of a command: letters, digits and _ . , : = @ % / + -, and {node}, without spaces and quotes",
        "/usr/local/sbin/drain-node",
        longest=255,
    ),
]
SlurmName = Annotated[
    str,
    text("[A-Za-z0-9_]([-A-Za-z0-9_.]*)", "a name of Slurm: letters, digits and _ . -", "maintenance", longest=64),
]
FolderPath = Annotated[str, text(_PATH, _PATH_RULE, "/srv/grapnel/driver-550.163.01", longest=255)]
RunfilePath = Annotated[str, text(_PATH, _PATH_RULE, "/srv/grapnel/driver.run", longest=255)]
SigningKeyPath = Annotated[str, text(_PATH, _PATH_RULE, "/var/lib/dkms/mok.key", longest=255)]
CertificatePath = Annotated[str, text(_PATH, _PATH_RULE, "/var/lib/dkms/mok.pub", longest=255)]
KubeconfigPath = Annotated[str, text(_PATH, _PATH_RULE, "/etc/kubernetes/kubelet.conf", longest=255)]
AbsolutePath = Annotated[
    str,
    text(
        _PATH,
        _PATH_RULE,
        "/var/lib/kubelet",
        longest=255,
    ),
]
Percent = Annotated[str, text("(100|[1-9][0-9]?)%", "a percentage: 1% to 100%", "25%")]
