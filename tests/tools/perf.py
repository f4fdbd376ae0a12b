# SPDX-License-Identifier: LGPL-2.1-or-later
"""bmi-perf over TCP, the software HCA and the software Elan4, used like a user does."""
import ctypes, json, os, pathlib, re, signal, socket, subprocess

import pytest
from conftest import EMU, PERF, PORTS, ROCE, ROOTLESS, complains, limited, needs_rootless, outcome, over, run, until
from hypothesis import example, given, settings, strategies as st


def counters(out, side='client'):
    """The counters of one side that --counters has printed."""
    text = re.search(rf'^counters of {re.escape(side)},.*\n((?: .*\n)*)', out, re.M)[1]
    return {name: int(value) for name, value in re.findall(r'^ +(\w+) +(\d+)', text, re.M)}


@pytest.fixture
def perf(lane, servers):
    """Runs a mode with the first server."""
    return lambda words, **more: run(*lane.perf(words, servers[0].address), **more)


@pytest.fixture
def verify(perf):
    """Likewise, and compares contents."""
    def measure(words):
        out = perf(f'{words} --verify --rounds 2')
        assert 'WRONG' not in out, out
    return measure


# ---- contents ----

@over('tcp', 'ib', 'elan4')
def test_contents_right_in_every_mode(lane, verify):
    modes = [
        'lat --sizes 0,1,8,1000,1919,1920,4096,16384,100001 --count 30',
        'list --sizes 6300 --extent 63 --stride 64 --split 7 --list-both --count 30',
        'rate --sizes 16 --count 300 --unexpected',
        'rate --sizes 8 --count 1000',
    ]
    if lane.name != 'tcp':  # lists up to the engine's limit for one operation
        modes += [
            'rate --sizes 16384 --count 50 --unexpected --reply 1',
            'list --sizes 512K --count 10',
            'list --sizes 512K --count 10 --memory bmi',
            'list --sizes 512K --split 256 --count 10 --direction put',
            'list --sizes 512K --split 256 --count 10 --direction get',
            'list --sizes 256K --extent 64 --stride 96 --split 4096 --list-both --count 4 --direction put',
            'list --sizes 256K --extent 64 --stride 96 --split 4096 --list-both --count 4 --direction get',
        ]
    for way in 'put', 'get', 'both':
        for memory in ['user', 'bmi'][:2 if lane.name != 'tcp' else 1]:
            modes.append(f'bw --sizes 1,4000,4096,65537,1048576 --count 40 --direction {way} --memory {memory}')
    for words in modes:
        verify(words)


@st.composite
def measurements(draw):
    """A mode with up to three sizes, near limits of protocols, and up to five options."""
    number, few, way = st.integers(0, 40), st.integers(0, 3), st.sampled_from(['put', 'get', 'both'])
    size = st.tuples(st.sampled_from([0, 1024, 1920, 4096, 16384, 65536, 1 << 20]), st.integers(-70, 70)).map(
        lambda near: max(0, sum(near)))
    options = {'window': number, 'buffers': number, 'split': number, 'pool': number, 'reuse': number, 'clients': few,
               'holes': few, 'extent': size, 'stride': size, 'reply': size, 'direction': way,
               'memory': st.sampled_from(['user', 'bmi'])}
    flags = ['list-both', 'unexpected', 'pack', 'alone']
    words = [draw(st.sampled_from(['lat', 'bw', 'rate', 'list'])), '--sizes',
             ','.join(map(str, draw(st.lists(size, min_size=1, max_size=3))))]
    for name in draw(st.lists(st.sampled_from([*options, *flags]), max_size=5, unique=True)):
        words += [f'--{name}'] + ([str(draw(options[name]))] if name in options else [])
    return ' '.join(words)


@over('tcp', 'ib', 'elan4')
@settings(max_examples=25)
@example(words='rate --sizes 16385 --unexpected')
@given(words=measurements())
def test_drawn_measurement_right_or_refused(lane, servers, words):
    """Contents are right, or one line says what is wrong with the options."""
    status, out = outcome(*lane.perf(f'{words} --count 6 --rounds 1 --verify', servers[0].address))
    assert (status == 0 and 'WRONG' not in out) or (status == 2 and re.fullmatch('bmi-perf: .*\n', out)), (status, out)


@over('tcp', 'ib', 'elan4')
def test_clients_share_one_result(servers, perf):
    more = f'{servers[1].address} --sizes 64K --count 100 --clients 3 --rounds 2 --verify --json'
    _, result = json.loads(perf(f'bw {more}'))
    assert result['bad'] == 0 and result['median'] > 0
    _, result = json.loads(perf('lat --sizes 8 --count 50 --rounds 2 --clients 2 --json'))
    assert 0 < result['p50'] <= result['p99'] <= result['p99.9']


@over('tcp')
def test_foreign_client_disturbs_no_other(servers, verify):
    with socket.create_connection(servers[0].address.split(':')) as foreign:
        foreign.sendall(b'GET / HTTP/1.0\r\n\r\n' + b'0' * 200)
        verify('lat --sizes 8 --count 10')


def test_file_in_stores_comes_back(work, start):
    stores, nowhere = [f'127.0.0.1:{next(PORTS)}' for _ in range(2)], f'127.0.0.1:{next(PORTS)}'
    for n, address in enumerate(stores):
        (work / str(n)).mkdir()
        start.server(PERF, 'tcp-store', address, work / str(n))
    source, copy, content = work / 'source', work / 'copy', pathlib.Path(PERF).resolve().read_bytes()
    for size in 0, 1, 65535, 65536, 65537, 131072, 1000003:
        source.write_bytes(content.ljust(size)[:size])
        run(PERF, 'tcp-put', source, 'file', *stores)
        run(PERF, 'tcp-get', 'file', copy, *stores)
        assert source.read_bytes() == copy.read_bytes()
    complains(1, 'No such file', PERF, 'tcp-get', 'nothing', work / 'none', *stores)
    assert not (work / 'none').exists()
    for address in stores[0], nowhere:
        run(PERF, 'tcp-get', 'nothing', copy, address, status=1)
        assert source.read_bytes() == copy.read_bytes(), 'a failed copy changed the file'
    complains(1, 'unknown size; copy the data to a regular file first',
              PERF, 'tcp-put', '/proc/self/status', 'status', *stores)
    run(PERF, 'tcp-put', source, '../escape', stores[0], status=1)
    assert not (work / '0/status').exists() and not (work / 'escape').exists()


def test_server_waits_for_clients_without_limit(work, start):
    """accept() of a listener that has a limit of silence fails, and the server ends."""
    server = start.server(PERF, 'tcp-store', f'127.0.0.1:{next(PORTS)}', work)
    pidfd_getfd, process, limits = 438, os.pidfd_open(server.pid), []
    for fd in os.listdir(f'/proc/{server.pid}/fd'):
        if os.readlink(f'/proc/{server.pid}/fd/{fd}').startswith('socket:'):
            with socket.socket(fileno=ctypes.CDLL(None).syscall(pidfd_getfd, process, int(fd), 0)) as copy:
                if copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    limits.append(copy.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16))
    os.close(process)
    assert limits == [bytes(16)]


# ---- counters ----

@over('ib', 'elan4')
def test_counters_of_both_sides_agree(perf):
    out = perf('bw --sizes 1M --count 20 --warm 0 --rounds 1 --counters')
    assert len(re.findall(' bytes_received *20971', out)) == len(re.findall(' bytes_sent *20971', out)) == 1, out
    assert ' rnr ' not in out, out


@over('ib')
def test_counters_and_measurements_are_one_document(servers, perf):
    machine, *rest = json.loads(perf('bw --sizes 64K,1M --count 20 --rounds 1 --json --counters'))
    assert machine['system'] == f'{os.uname().sysname} {os.uname().release}'
    assert {row['counters'] for row in rest if 'bytes_sent' in row} == {'client', servers[0].address} and len(rest) == 4


@over('ib')
@pytest.mark.parametrize('words, least, most', [
    ('8K --bmi-options pack_threshold=1,list_mode=group,regcache_entries=0', 44, 44),
    ('8K --holes 3 --bmi-options pack_threshold=1,list_mode=group,regcache_entries=0', 176, 176),
    ('8K --bmi-options regcache_entries=0,list_mode=group', 44, 44),
    ('512K --bmi-options regcache_entries=0,list_mode=group', 2816, 2816),  # too far apart for a group
    ('8K --bmi-options regcache_entries=0,list_mode=pack', 0, 43)], ids=['whole', 'holes', 'near', 'far', 'packed'])
def test_list_registered_in_its_groups(perf, words, least, most):
    """11 lists both ways in both rounds."""
    out = perf(f'list --sizes 256K --extent 4K --count 10 --rounds 2 --alone --counters --stride {words}')
    assert least <= counters(out)['registrations'] <= most


@over('ib')
def test_pool_reuses_buffers_as_requested(perf):
    """20 of 100 messages, except the first ones."""
    got = counters(perf('bw --sizes 64K --count 100 --warm 0 --rounds 1 --window 4 --pool 200 --reuse 20 --counters '
                                  '--bmi-options pack_threshold=1,regcache_entries=50'))
    assert (got['reg_misses'], got['reg_hits']) == (84, 16)


@over('ib')
def test_list_moves_in_split_operations(perf):
    for split in 64, 256:
        got = counters(perf(f'list --sizes 512K --count 10 --warm 0 --rounds 1 --alone --split {split} --counters'))
        assert (got.get('sends_rndv_write', 0) + got.get('sends_rndv_read', 0)) * split == 2560


@over('ib')
def test_few_requests_signalled_unless_asked(perf):
    for each in 0, 1:
        got = counters(perf(f'bw --sizes 1K --count 400 --rounds 1 --counters --bmi-options signal_each={each}'))
        requests, signalled = got['send_requests'], got['signalled']
        assert requests >= 400 and signalled > 0 and (signalled == requests if each else signalled * 4 <= requests)


# ---- session, explanation, options ----

@over('ib', 'elan4')
def test_unknown_option_reported_and_ignored(lane, servers, start):
    nonsense = lane.serve(start, lane.address(), '--bmi-options', 'nonsense=1')
    assert 'unknown option "nonsense" ignored' in nonsense.said()
    for words in 'bw --sizes 4K --count 10 --clients 3', 'idle --clients 2 --seconds 1', '--session', '--counters':
        command = lane.perf(f'{words} --bmi-options poll_us=5,nonsense=1', servers[0].address)
        got = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert got.returncode == 0, got
        assert re.fullmatch('bmi-perf: unknown option "nonsense" ignored; .*\n', got.stderr), got


@over('ib', 'elan4')
def test_session_shows_path_and_attributes(lane, perf):
    shown = {'elan4': [r': up.*, by node \d+ context \d+ \(VPID \d+\) to node 0 context 2 \(VPID \d+\), rail 0\n'],
             'ib': [': up.*, by emu0 port 1, 100 Gb/s, no NUMA node, PKey 0xffff, path MTU 4096, '
                    r'GID 0 InfiniBand [^,]* \(not in the packets\), to LID \d+, service level 0\n',
                    'eager_bytes +4608 bytes', 'unexpected_sent +1 messages', 'cache_entries +1024 pieces',
                    'piece_bytes +65536 bytes', r'polls_us +\d+ us', 'the bytes of one operation, to one peer',
                    'traffic_class +-1 value +of all messages and data of a connection']}
    out = perf('--session')
    for what in ['rx_size', *shown[lane.name]]:
        assert re.search(what, out), (what, out)
    if lane.name == 'ib':
        assert re.search('by emu0 port 1, .*, service level 5', perf('--session --bmi-options traffic_class=5'))


@over('ib')
def test_limits_in_effect_shown_under_memlock(lane, servers):
    out = run(*limited('-l 512'), *lane.perf('--session', servers[0].address), '--bmi-options',
              'rx_size=18K,eager_ring_pool=8M')
    assert re.search(r'rx_size +1008\n', out) and re.search(r'eager_ring_pool +32768\n', out), out


@needs_rootless
@over('ib')
def test_root_of_a_namespace_lifts_no_limit(lane, work):
    """A server in the namespace, as in a rootless container."""
    out = run(*limited('-l 512', False), *ROOTLESS, 'bash', '-c', '''
        mkfifo "$1" && { ./with-ready "$1" "$2" "$3" server "$4" & } && read -r line < "$1" || exit 98
        got=0; "$2" "$3" --session "$4" --bmi-options rx_size=18K || got=$?
        kill $!; exit $got''', '-', work / 'rootless', EMU, PERF, lane.address())
    assert re.search(r'rx_size +1008\n', out), out


@over('ib')
def test_path_on_ethernet_shows_gid_and_class(lane, start):
    address = lane.address()
    start.server(*lane.perf('server', address), env=ROCE)
    for options, port, traffic, why in [('traffic_class=104', 1, 104, 'source address of the route to the peer'),
                                        ('traffic_class=32,gid=127.0.0.2', 2, 32, 'address of the option gid')]:
        run(*lane.perf(f'--session --bmi-options {options}', address), env=ROCE,
            says=f', by emu0 port {port}, 100 Gb/s, no NUMA node, PKey 0xffff, path MTU 1024, '
                 f'GID 0 RoCE v2 ::ffff:127.0.0.{port} ({why}), traffic class {traffic}, service level 0\n')


@pytest.mark.parametrize('size, messages', [(10000000, 5), (4195000, 3)], ids=['large', 'rest'])
def test_buffers_sized_by_the_session(size, messages):
    """Read or write is the engine's choice by its load."""
    out = run(EMU, 'embedded/examples/sized', str(size))
    sent = re.fullmatch(rf'{messages} messages of 2097152 bytes, 2 buffers\n'
                        r'sent (\d+) by RDMA write, (\d+) by RDMA read of the server\n', out)
    assert sent and int(sent[1]) + int(sent[2]) == messages, out


@over('ib', 'elan4')
def test_options_and_explanation_printed(lane, perf):
    assert len(re.findall('^rx_size=', run(PERF, '--options', says='sq_depth='), re.M)) == 1

    def explain(options=''):
        return run(*lane.perf(f'--explain 512Kx256 {options}', *{'ib': [], 'elan4': [lane.address()]}[lane.name]))
    assert re.search('write[^$]*read', explain())
    run(*lane.client(PERF), '--explain', '64K', '--bmi-options', 'list_mode=all', status=1,
        says='option list_mode=all: allowed: auto|pack|group')
    assert 'bytes: option list_mode' in explain('--bmi-options list_mode=group')
    old = explain('--bmi-options lists=group,invite=0')
    assert ' bytes: option list_mode' in old
    assert old.count('accepted in this release only: lists is now list_mode, invite is now early_cts\n') == 1, old
    perf('idle --clients 5 --seconds 1')


# ---- complaints ----

# Status, arguments, text; {0} is the server, {1} an address where none listens.
COMPLAINTS = {'tcp': [
    '1 | bw {1} | Connection refused',
    '1 | server {0} | cannot listen',
    '2 | bw ib://127.0.0.1:1 | host:port',
    '2 | bw {0} --sizes 12x | --sizes does not take',
    '2 | list {0} --sizes 1000 --extent 7 | multiple of the extent',
    '2 | bw {0} --sizes 1M --window 4096 --buffers 4096 | limited to 2 GiB'], 'ib': [
    '1 | lat ib:// | ib://: cannot use this address: no network has such addresses; give one like ib://host:port',
    '1 | lat ib://:3 | cannot use this address: bmi_ib: bad address "ib://:3": expected ib://host:port',
    '1 | lat {1} | refused',
    '1 | server {0} | cannot listen',
    '1 | server ib://127.0.0.1 | cannot listen',
    '1 | --explain 64K tcp://x | tcp://x: unknown network; give an address like ib://host:port',
    '2 | bw nowhere | nowhere: not a BMI address; give one like ib://host:port',
    '2 | frobnicate | no such mode',
    '2 | | no mode',
    '2 | bw | ib://',
    '2 | --explain 12x | SIZExSEGMENTS',
    '1 | bw {0} --bmi-options unit=1 |',
    '2 | list {0} --stride 1000000000000 | the stride is limited to 1 GiB',
    '2 | list {0} --stride 1 | the stride must be at least the extent',
    '2 | list {0} --sizes 512K --split 4097 | an operation has 1 to 4096 segments',
    '2 | bw {0} --sizes 1K --pool 8 | more than the window',
    '2 | list {0} --holes 3 | whole pages',
    '2 | list {0} --pack --direction get | that are put are packed',
    '1 | --session {0} --bmi-options gid=192.0.2.1 | gid=192.0.2.1: no port of device emu0 has this address',
    '2 | --options --json | --json is for modes that measure',
    '2 | --explain 64K --json | --json is for modes that measure',
    '2 | --session {0} --json | --json is for modes that measure',
    '2 | --counters {0} --json | --json is for modes that measure',
    '2 | server {1} --json | --json is for modes that measure',
    '2 | --counters | one address',
    '1 | --counters {1} | refused'], 'elan4': [
    '1 | lat {1} | refused',
    '1 | server {0} | cannot listen',
    '1 | server elan4://1:66 | elan_contexts=2-65',
    '1 | server elan4://1 | expected elan4://node:context',
    '1 | server elan4://here:2 | NODE:CONTEXT',
    '1 | server elan4://5:2 | elan4://5:2: not an address of this host, which is node 16',
    '1 | lat {0} --bmi-options elan_nodes=x | elan_nodes=x: expected FIRST-LAST']}


@over('tcp', 'ib', 'elan4')
def test_wrong_arguments_refused_with_remedy(lane, servers):
    for row in COMPLAINTS[lane.name]:
        status, words, text = (part.strip() for part in row.format(servers[1].address, lane.address()).split('|', 2))
        complains(int(status), text, *lane.perf(words, node=1 if 'server elan4://1' in words else 16))
    run(PERF, '--help')


@over('ib')
def test_sessions_beyond_the_limit_refused(servers):
    run(EMU, 'tests/tools/perf_sessions', servers[0].address)


# ---- processes that die ----

def transfer(lane, start, server, node=16):
    """A client in the middle of a long transfer: the server has counted some of its bytes."""
    def received():
        out = run(*lane.perf('--counters', server.address))
        return sum(int(n) for n in re.findall(r'^rme_bytes_received_total\S* (\d+)', out, re.M))
    before = received()
    client = start(*lane.perf('bw --sizes 1M --count 1000000 --rounds 1', server.address, node=node))
    until(lambda: received() - before > 1 << 22)
    return client


@over('ib', 'elan4')
def test_client_killed_midway_disturbs_no_other(lane, servers, start, verify):
    for _ in range(3):
        transfer(lane, start, servers[0]).end(signal.SIGKILL)
    verify('bw --sizes 64K --count 100')


@over('ib', 'elan4')
def test_server_killed_midway_ends_its_client(lane, start):
    server = lane.serve(start, lane.address())
    client = transfer(lane, start, server, re.search(r'(\d+):\d', server.address)[1])  # over Elan4 on the same node
    server.end(signal.SIGKILL)
    assert client.wait() == 1 and client.said().count('\n') == 1, client.said()


# ---- limits over Elan4 ----

SHORT = 'lat --sizes 8 --count 10 --rounds 1'


@over('elan4')
def test_few_descriptors_reported_wherever_missing(lane, servers, start):
    """A client with few descriptors says so; it need not have ended by then."""
    said = ''
    for n in range(8, 60):
        command = lane.client('prlimit', f'--nofile={n}:{n}', PERF, *SHORT.split(), servers[0].address)
        client = start('./libtool', '--mode=execute', *command)
        until(lambda: 'Too many open files' in client.said() or client.poll() is not None)
        if client.poll() == 0:
            break
        assert 'Too many open files' in client.said()
        client.end()
        said += client.said()
    assert 8 < n < 59
    for what in 'cannot attach to context', 'no descriptor to sleep on':
        assert re.search(f'{what}.*: Too many open files; raise the limit of open files \\(ulimit -n\\)', said), said
    assert not re.search('bmi_elan4: .*Too many open files(?!; (raise|set) )', said), said


@over('elan4')
@pytest.mark.parametrize('limit, says', [
    ('-f 1000', ['RLIMIT_FSIZE is 1024000', 'ulimit -f']),
    ('-v 1000000', ['RLIMIT_AS is 1024000000', 'ulimit -v', 'EMUELAN4_SEGMENT_MIB'])], ids=['files', 'memory'])
def test_limit_of_process_named_with_remedy(lane, servers, limit, says):
    run(*limited(limit), *lane.perf(SHORT, servers[0].address), status=1, says=says)
