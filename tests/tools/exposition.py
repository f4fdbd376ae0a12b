# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Input for Prometheus: bmi-perf --counters of a running server, and the file of bmi-iod --metrics.  A strict reader
checks every line, and is itself tested with single errors.
"""
import os, pathlib, re, resource, signal

import pytest
from conftest import EMU, PERF, PORTS, Starter, complains, run, until

NAME, STRING = '[a-zA-Z_:][a-zA-Z0-9_:]*', r'"(?:[^"\\]|\\["\\n])*"'
LABEL = f'[a-zA-Z_][a-zA-Z0-9_]*={STRING}'
SAMPLE = re.compile(rf'({NAME})({{{LABEL}(?:,{LABEL})*}})? ([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)')


def judge(text):
    """
    Reads the text format (0.0.4) as strictly as its parser, and more so: HELP, TYPE and the samples of a metric are
    together, and once; no sample twice; values of counters, whose names end in _total, are not negative.
    """
    metrics, samples, kind = {}, set(), None
    for line in text.splitlines():
        if found := re.fullmatch(rf'# HELP ({NAME}) [^ ](?:[^\\]|\\[\\n])*', line):
            assert found[1] not in metrics and kind != '', f'a metric twice, or one without type: {line}'
            name, kind = found[1], ''
            metrics[name] = 0
        elif found := re.fullmatch(rf'# TYPE ({NAME}) (counter|gauge)', line):
            assert kind == '' and found[1] == name, f'no help of it: {line}'
            kind = found[2]
            assert (kind == 'counter') == name.endswith('_total'), line
        else:
            found = SAMPLE.fullmatch(line)
            assert found and kind and found[1] == name, f'no sample of this metric: {line}'
            labels = re.findall(f'([^={{,]*)={STRING}', found[2] or '')
            assert len(set(labels)) == len(labels) and (name, found[2]) not in samples, f'twice: {line}'
            assert kind == 'gauge' or float(found[3]) >= 0, line
            samples.add((name, found[2]))
            metrics[name] += float(found[3])
    assert samples, 'no samples'
    return metrics


@pytest.fixture(scope='module')
def text(work):
    """What --counters prints of a server that has received 50 messages of 1 MiB."""
    starter, address = Starter(work), f'ib://127.0.0.1:{next(PORTS)}'
    starter.server(EMU, PERF, 'server', address)
    run(EMU, PERF, *'bw --sizes 1M --count 50 --rounds 1'.split(), address)
    yield run(EMU, PERF, '--counters', address)
    starter.end()


def test_counters_of_server_well_formed(text):
    metrics = judge(text)
    assert len(metrics) > 50 and '# TYPE rme_peers gauge\n' in text
    assert sum(metrics[f'rme_recvs_rndv_{way}_messages_total'] for way in ('write', 'read')) >= 50
    assert metrics['rme_bytes_received_total'] >= 50 << 20


@pytest.mark.parametrize('wrong, right', [
    ('# TYPE rme_peers gauge\n', ''), ('# TYPE rme_peers gauge', '# TYPE rme_peers counter'),
    ('(rme_peers{network=)"ib"', r'\1ib'),
    ('(rme_peers{.*}) .*', r'\1 many'), ('(rme_peers{.*\n)', r'\1\1'), ('# HELP rme_peers .*', '# HELP rme_peers'),
    ('$(?![^$])', '# HELP rme_peers again\n# TYPE rme_peers gauge\n')],
    ids=['untyped', 'counter', 'unquoted', 'value', 'sample', 'unhelped', 'metric'])
def test_reader_sees_single_error(text, wrong, right):
    spoilt = re.sub(wrong, right, text)
    assert spoilt != text
    with pytest.raises(AssertionError):
        judge(spoilt)


def test_server_without_memory_says_so(start):
    address = f'ib://127.0.0.1:{next(PORTS)}'
    start.server(EMU, PERF, 'server', address, '--server-memory', '512K')
    complains(1, 'raise its --server-memory', EMU, PERF, '--counters', address)


# ---- bmi-iod --metrics ----

class Iod:
    """A bmi-iod that keeps a file of metrics."""

    def __init__(self, start, store, metrics, *before):
        self.address, self.metrics = f'ib://127.0.0.1:{next(PORTS)}', metrics
        store.mkdir(exist_ok=True)
        self.process = start.server(*before, EMU, './bmi-iod', '--listen', self.address, '--store', store,
                                    '--metrics', metrics)

    def ask(self, condition):
        """Asks for the file until the condition holds."""
        def asked():
            self.process.send_signal(signal.SIGUSR1)
            return condition()
        until(asked)


@pytest.fixture
def folder(start):
    (start.work / 'prom').mkdir()
    return start.work


def test_metrics_file_complete_at_any_time(folder, start):
    """Also when a second server writes it; a file with the temporary name does not disturb, and none stays."""
    file, prom = folder / 'file', folder / 'prom/iod.prom'
    (folder / 'prom/iod.prom.new').mkdir()
    file.write_bytes(os.urandom(3000000))
    first = Iod(start, folder / 'store', prom)
    run(EMU, './bmi-cp', '-q', file, f'{first.address}/file')
    first.ask(lambda: prom.exists() and '\niod_bytes_in_total 3000000\n' in prom.read_text())
    assert judge(prom.read_text())['rme_bytes_received_total'] > 0
    second = Iod(start, folder / 'other', prom)
    for _ in range(100):
        first.process.send_signal(signal.SIGUSR1)
        second.process.send_signal(signal.SIGUSR1)
        judge(prom.read_text())
    assert 'iod.prom: ' not in first.process.said() + second.process.said()
    (folder / 'prom/iod.prom.new').rmdir()
    first.process.end()
    until(lambda: os.listdir(folder / 'prom') == ['iod.prom'])


def test_unwritable_metrics_reported_once(folder, start):
    """The server ignores SIGXFSZ, and its log is not a file."""
    prom = folder / 'prom/iod.prom'
    iod = Iod(start, folder / 'store', prom, 'bash', '-c', 'trap "" XFSZ; exec "$@" > >(cat) 2>&1', '-')
    complaint = 'iod.prom: cannot be written: File too large; make room there'
    iod.ask(prom.exists)
    resource.prlimit(iod.process.pid, resource.RLIMIT_FSIZE, (4096, -1))
    iod.ask(lambda: complaint in iod.process.said())
    until(lambda: os.listdir(folder / 'prom') == ['iod.prom'])
    resource.prlimit(iod.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
    iod.ask(lambda: 'iod.prom: can be written again' in iod.process.said())
    assert iod.process.said().count(complaint) == 1
    judge(prom.read_text())


def test_metrics_file_refused_at_start(folder, start):
    """If it cannot be written, would replace something else, or is in a store."""
    store = folder / 'store'
    running = Iod(start, store, folder / 'prom/iod.prom')
    (store / 'file').write_text('')
    os.mkfifo(folder / 'fifo')
    (folder / 'link').symlink_to(folder / 'fifo')
    (folder / 'also').symlink_to('store')
    (folder / 'empty').mkdir()

    def refused(text, metrics, at=folder / 'empty', cwd=None):
        complains(1, f'--metrics: {text}', *(pathlib.Path(name).resolve() for name in (EMU, './bmi-iod')), '--listen',
                  f'ib://127.0.0.1:{next(PORTS)}', '--store', at, '--metrics', metrics, cwd=cwd)
    refused(f'cannot write {folder}/none/iod.prom: No such file or directory; give ', folder / 'none/iod.prom')
    refused('empty file name; give ', '')
    for name in 'fifo', 'link', 'prom':
        refused(f'{folder}/{name} is not a regular file', folder / name)
    refused(f'{store}/new.prom is in a store, where an object may have that name; give ',
            store / 'new.prom')
    running.process.end()
    for name in 'store/file', 'also/file', 'store/new.prom':
        refused(f'{folder}/{name} is in a store, where an object may have that name; give ', folder / name, store)
    refused('here.prom is in a store', 'here.prom', '.', store)
    assert (folder / 'fifo').is_fifo() and (folder / 'link').is_symlink()


def test_server_outlives_its_metrics_folder(folder, start):
    (folder / 'file').write_bytes(os.urandom(300000))
    iod = Iod(start, folder / 'store', folder / 'prom/iod.prom')
    run(EMU, './bmi-cp', '-q', folder / 'file', f'{iod.address}/file')
    (folder / 'prom').rename(folder / 'away')
    for count in range(1, 6):  # one after the other
        iod.process.send_signal(signal.SIGUSR1)
        until(lambda: iod.process.said().count('total: requests') >= count)
    run(EMU, './bmi-cp', '-q', f'{iod.address}/file', folder / 'back')
    assert (folder / 'back').read_bytes() == (folder / 'file').read_bytes()
    complaint = 'prom/iod.prom: cannot be written: No such file'
    until(lambda: complaint in iod.process.said())
    assert iod.process.said().count(complaint) == 1
