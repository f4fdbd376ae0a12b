# SPDX-License-Identifier: LGPL-2.1-or-later
"""bmi-perf doctor on machines that lack something, and with a server."""
import os, re, shutil, threading

import pytest
from conftest import EMU, PERF, PORTS, ROCE, ROOTLESS, SRC, complains, limited, needs_rootless, outcome, run

USERFAULTFD = 323  # of x86-64
BARE = re.compile(r'^(WARN|FAIL)  .*\n(?! +remedy: )', re.M)  # a row without a remedy
ALONE = ['unshare', '--mount', '--propagation', 'private'] if os.getuid() == 0 else [*ROOTLESS, '--mount']
needs_mounts = pytest.mark.skipif(outcome(*ALONE, 'true')[0] != 0, reason='no mount namespaces for this user')
NET = [*ROOTLESS, '--net', 'env', f'PATH={os.environ["PATH"]}:/sbin:/usr/sbin', 'bash', '-c']


def doctor(*rows, status=0, before=(), emulated=True, arguments=(), env=()):
    """What doctor prints: these rows, VERDICT SUBJECT | TEXT -> REMEDY, and a remedy below each that is not PASS."""
    out = run(*before, *[EMU][:emulated], PERF, 'doctor', *arguments, status=status, env=env)
    for row in rows:
        verdict, subject, text, remedy = re.fullmatch(r'(\w+) (.*?) \| (.*?)(?: -> (.*))?', row).groups()
        words = rf'^{verdict}  {re.escape(subject)} .*{re.escape(text)}'
        words += rf'.*\n +remedy: .*{re.escape(remedy)}' if remedy else ''
        assert re.search(words, out, re.M), f'no row {row}: {out}'
    assert not BARE.search(out), f'no remedy: {out}'
    return out


def test_healthy_machine_passes_with_next_step():
    out = doctor('PASS emu0 | (software HCA)', 'PASS system | libibverbs of emuverbs',
                 'PASS emu0 port 1 | active, InfiniBand, 100 Gb/s, MTU 4096', 'PASS emu0 port 1 | GIDs: 0 fe80::',
                 'PASS emu0 port 1 | addresses: ', 'PASS engine | a key opens the bytes of one operation',
                 'PASS emu0 | memory windows of type 2: yes; on-demand paging: yes; NUMA node: none;')
    assert ' 0 failed\nnext: ' in out, out


@pytest.mark.skipif(os.path.exists('/dev/infiniband'), reason='this machine has a device')
def test_missing_device_fails():
    doctor('FAIL devices | no RDMA device', status=1, emulated=False)


def test_limits_of_process_named():
    doctor('WARN memlock | 64 KiB may be registered by this process -> limits.conf', before=limited('-l 64'))
    doctor('WARN open files | 256', before=limited('-n 256'))
    out = doctor('WARN userfaultfd | Operation not permitted', 'PASS registration cache | by hooks in the C library',
                 before=['tests/lib/forbid', USERFAULTFD])
    assert out.count('WARN') == 1, out


@needs_rootless
def test_root_of_a_namespace_lifts_no_memlock():
    doctor('WARN memlock | 64 KiB may be registered',
           before=[*limited('-l 64', False), *ROOTLESS])


def test_little_mtu_warned_about():
    little = {'EMUVERBS_MTU': '1024'}
    doctor('WARN emu0 port 1 | active, InfiniBand, 100 Gb/s, MTU 1024 -> subnet manager', env=little)
    doctor('WARN emu0 port 1 | active, Ethernet, 100 Gb/s, MTU 1024 -> mtu 4200',
           'PASS emu0 port 1 | GIDs: 0 RoCE v2 ::ffff:127.0.0.1', env={**little, 'EMUVERBS_ETHERNET': '1'})


def test_port_without_address_warned_about():
    ports = {'EMUVERBS_PORTS': '2', 'EMUVERBS_ADDRESSES': '127.0.0.1,203.0.113.9'}
    doctor('WARN emu0 port 2 | no IP address -> ip address add', env={**ports, 'EMUVERBS_ETHERNET': '1'})
    out = doctor('WARN emu0 port 2 | no IP address -> ib_ipoib', env=ports)
    shown = re.findall(r'^    ((?:PASS|WARN|FAIL)  .*)', (SRC / 'README.md').read_text(), re.M)  # such a machine
    assert len(shown) > 2 and all(f'\n{line}' in out for line in shown), shown


@needs_rootless
def test_addresses_of_a_network_judged():
    doctor('FAIL devices | no active port has an IP address', before=[*ROOTLESS, '--net'], status=1)
    doctor('WARN emu0 port 1 | no IP address but that of the link', status=1, before=[*NET, '''ip link set lo up &&
        ip address flush dev lo && ip address add fe80::5/64 dev lo nodad && exec "$@"''', '-'])
    same = [*NET, 'ip link set lo up && ip address add "$1" dev lo && shift && exec "$@"', '-']
    two = {'EMUVERBS_PORTS': '2'}
    doctor('WARN emu0 port 2 | in the same IPv4 network as emu0 port 1 -> arp_ignore', before=[*same, '127.0.0.2/8'],
           env=two)
    assert 'arp_ignore' not in doctor(before=[*same, '127.0.0.2/32'], env=two)


# ---- a machine of other files ----

class View:
    """Files in place of the kernel's, of /sys/class, /sys/bus/pci/devices (pci), /dev and /sys/kernel/security."""

    def __init__(self, at):
        self.at, self.infiniband = at, at / 'dev/infiniband'
        for name in 'class/infiniband', 'class/infiniband_verbs', 'pci', 'security', 'dev/infiniband', 'dev/shm':
            (at / name).mkdir(parents=True)
        self.write('security/lockdown', '[none] integrity confidentiality')
        self.write('dev/infiniband/rdma_cm', '')
        self.enter = [*ALONE, 'bash', '-c', '''
            fake=$1; shift
            set -e
            mount --bind "$fake/class" /sys/class
            mount --bind "$fake/pci" /sys/bus/pci/devices
            mount -t tmpfs none /sys/kernel
            cp -R "$fake/security" /sys/kernel/
            for f in null urandom zero; do touch "$fake/dev/$f"; mount --bind "/dev/$f" "$fake/dev/$f"; done
            mount --rbind /dev/shm "$fake/dev/shm"
            mount --rbind "$fake/dev" /dev
            exec "$@"''', '-', at]

    def write(self, name, text):
        (self.at / name).parent.mkdir(parents=True, exist_ok=True)
        (self.at / name).write_text(text)

    def device(self, name):
        (self.at / f'class/infiniband/{name}/device').mkdir(parents=True)
        self.write('class/infiniband_verbs/uverbs0/ibdev', name)
        return f'class/infiniband/{name}'

    def adapter(self, slot, kind, vendor, driver=None):
        self.write(f'pci/{slot}/class', kind)
        self.write(f'pci/{slot}/vendor', vendor)
        if driver:
            (self.at / f'pci/{slot}/driver').symlink_to(f'../../../bus/pci/drivers/{driver}')

    def doctor(self, *rows, emulated=False, more=(), **others):
        return doctor(*rows, status=0 if emulated else 1, emulated=emulated, before=[*self.enter, *more], **others)


@pytest.fixture
def view(work):
    yield View(work / 'view')
    shutil.rmtree(work / 'view')


@needs_mounts
def test_unreachable_device_fails_with_cause(view):
    view.device('mlx5_0')
    out = view.doctor('FAIL mlx5_0 | /dev/infiniband/uverbs0: No such file -> docker run --device')
    assert 'no RDMA device' not in out, out
    view.write('dev/infiniband/uverbs0', '')
    view.doctor('FAIL mlx5_0 | libibverbs could not open it -> ibverbs-providers')
    for file in view.infiniband.iterdir():
        file.chmod(0)
    view.doctor('FAIL mlx5_0 | /dev/infiniband/uverbs0: Permission denied -> udev',
                'FAIL modules | /dev/infiniband/rdma_cm: Permission denied -> udev',
                more=['setpriv', '--inh-caps=-all', '--bounding-set=-all'])
    shutil.rmtree(view.at / 'class/infiniband_verbs/uverbs0')
    view.doctor('FAIL mlx5_0 | ib_uverbs is not loaded -> modprobe ib_uverbs')
    (view.infiniband / 'rdma_cm').unlink()
    view.doctor('FAIL modules | /dev/infiniband/rdma_cm: No such file -> modprobe rdma_ucm')


@needs_mounts
def test_adapter_without_device_names_module(view):
    view.adapter('0000:00:1f.6', '0x020000', '0x8086', 'e1000e')
    out = view.doctor('FAIL devices | no RDMA device -> emuverbs')
    assert '0000:00:1f.6' not in out and 'locked down' not in out, out
    view.adapter('0000:3b:00.0', '0x020700', '0x15b3', 'mlx5_core')
    view.adapter('0000:5e:00.0', '0x020000', '0x15b3')
    view.adapter('0000:86:00.1', '0x020000', '0x14e4', 'bnxt_en')
    view.write('security/lockdown', 'none [integrity] confidentiality')
    view.doctor('FAIL 0000:3b:00.0 | driver mlx5_core, without an RDMA device -> modprobe mlx5_ib',
                'FAIL 0000:5e:00.0 | driver none -> modprobe mlx5_core',
                'FAIL 0000:86:00.1 | driver bnxt_en -> modprobe bnxt_re',
                'FAIL devices | no RDMA device; the kernel is locked down',
                'PASS kernel | lockdown: none [integrity]')


@needs_mounts
def test_slot_narrower_than_port_warned_about(view):
    at = view.device('emu0') + '/device'
    for name, text in ('current_link_speed', '8.0 GT/s PCIe'), ('current_link_width', '8'), ('numa_node', '1'):
        view.write(f'{at}/{name}', text)
    view.doctor('WARN emu0 | PCIe 8 GT/s, 8 lanes: 63 Gb/s, less than the port -> more lanes',
                'PASS emu0 | NUMA node: 1;', emulated=True)
    view.write(f'{at}/current_link_width', '16')
    (view.at / at / 'physfn').mkdir()
    view.doctor('PASS emu0 | PCIe 8 GT/s, 16 lanes: 126 Gb/s', 'PASS emu0 | (software HCA) (virtual function)',
                emulated=True)


@needs_mounts
def test_packets_lost_meanwhile_warned_about(view):
    """Each counter is read at the begin and at the end; the second one, to know when the first one was closed."""
    counters = view.at / view.device('emu0') / 'ports/1/hw_counters'
    counters.mkdir(parents=True)
    os.mkfifo(counters / 'packet_seq_err')
    os.mkfifo(counters / 'out_of_sequence')

    def count():
        for value in '5', '17':
            (counters / 'packet_seq_err').write_text(value)
            (counters / 'out_of_sequence').write_text('0')
    threading.Thread(target=count, daemon=True).start()
    address = f'ib://127.0.0.1:{next(PORTS)}'
    served = ['bash', '-c', '''fifo=$1/ready address=$2; shift 2
        mkfifo "$fifo" && { ./with-ready "$fifo" "$1" "$2" server "$address" > /dev/null & } && read -r line < "$fifo"
        got=0; "$@" || got=$?
        kill $!; exit $got''', '-', view.at, address]
    out = view.doctor('PASS path | emu0 port 1, 100 Gb/s, ', 'WARN loss | counted meanwhile: packet_seq_err +12 -> PFC',
                      emulated=True, arguments=[address], more=served)
    assert 'out_of_sequence' not in out, out


# ---- engine, calls, server ----

def test_wide_keys_warned_about():
    doctor('PASS emu0 | memory windows of type 2: no',
           'WARN engine | opens; a key opens the bytes of one operation, to every peer -> SECURITY.md',
           env={'EMUVERBS_MAX_MW': '0'})
    doctor('WARN engine | opens; a key opens all of a registration, to every peer -> SECURITY.md',
           arguments=['--bmi-options', 'rkey_scope=region'])


def test_failed_call_reported_wherever():
    """Each call of verbs and rdma_cm fails once."""
    counted = run(EMU, PERF, 'doctor', env={'EMUVERBS_COUNT_CALLS': '1'})
    calls = int(re.search(r'^emuverbs: .*: (\d+) calls', counted, re.M)[1])
    assert calls > 20
    for number in range(1, calls + 1):
        status, out = outcome(EMU, PERF, 'doctor', env={'EMUVERBS_FAIL': str(number)})
        assert status == 0 or status == 1 and re.search('^FAIL  ', out, re.M), (number, status, out)
        assert ' passed, ' in out and ': Success' not in out and not BARE.search(out), (number, out)
    doctor('FAIL emu0 port 1 | cannot be queried: Input/output error -> dmesg', status=1,
           env={'EMUVERBS_FAIL': 'ibv_query_port:1'})


def test_missing_server_fails():
    address = f'ib://127.0.0.1:{next(PORTS)}'
    doctor(f'FAIL server | {address}', status=1, arguments=[address])


def test_server_measured_and_reported(start, work):
    address, report = f'ib://127.0.0.1:{next(PORTS)}', work / 'report'
    start.server(EMU, PERF, 'server', address)
    for _ in range(2):  # the raw connection of the first run does not stay
        out = doctor(f'PASS server | {address} answers', 'PASS path | emu0 port 1, 100 Gb/s, no NUMA node, PKey 0xffff, '
                     'path MTU 4096, ', 'PASS contents | messages are right: by eager, ring, write, write-copy, read, '
                     'read-copy', arguments=[address, '--report', report])
        assert re.search(r'4194304 +8 +\d+ +- +\d+ ', out), out
        assert re.search(r'BMI/raw[^$]*raw write[^$]* 4194304 ', out) and 'raw verbs: ' not in out, out
        assert out == report.read_text()
    run(EMU, PERF, 'doctor', '--report', work / 'none/report', status=1,
        says=f'{work}/none/report: cannot be written: No such file')
    complains(2, 'one address at most', PERF, 'doctor', address, address)


def test_raw_verbs_take_the_same_path(start, work):
    """The same address and class; and the report has no secret."""
    address, report = f'ib://127.0.0.1:{next(PORTS)}', work / 'report'
    start.server(EMU, PERF, 'server', address, env=ROCE)
    out = doctor('WARN path | emu0 port 2, 100 Gb/s, no NUMA node, PKey 0xffff, path MTU 1024, GID 0 RoCE v2 '
                 '::ffff:127.0.0.2 -> mtu 4200', env=ROCE, arguments=[
                     address, '--report', report, '--bmi-options', 'gid=127.0.0.2,traffic_class=104,elan_key=5ec4e7'])
    assert 'raw write' in out and 'WARN  raw verbs' not in out and '5ec4e7' not in report.read_text(), out
