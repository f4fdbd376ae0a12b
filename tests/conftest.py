# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Tests in pytest: their report in TAP, processes, lanes.  tests/lib/run runs a file of them in the build folder.

A case is a function test_NAME; its name in the report is NAME, or PARAMETERS/NAME.  Hypothesis draws
the same inputs in each run.  Logs of the processes that a failed case has started are in its report.
"""
import itertools, os, pathlib, re, select, shutil, signal, socket, subprocess, tempfile

import hypothesis
import pytest
from hypothesis.configuration import set_hypothesis_home_dir

SRC = pathlib.Path(os.environ.get('srcdir', '..')).resolve()
BUILD = pathlib.Path.cwd()
EMU = 'emul/verbs/emuverbs'
PERF = './bmi-perf'
ROCE = {'EMUVERBS_ETHERNET': '1', 'EMUVERBS_MTU': '1024', 'EMUVERBS_PORTS': '2',
        'EMUVERBS_ADDRESSES': '127.0.0.1,127.0.0.2'}  # two ports of little MTU
FIRST_PORT = int(os.environ.get('FIRST_PORT', 0))
PORTS = itertools.count(FIRST_PORT)
running = []  # processes that were started, the last one at the end

hypothesis.settings.register_profile('gate', derandomize=True, deadline=None, database=None, max_examples=60,
                                      suppress_health_check=list(hypothesis.HealthCheck))
hypothesis.settings.load_profile('gate')


# ---- report ----

def tap_name(item_id):
    """The case in the report, of a pytest identifier."""
    name, _, lane = item_id.split('::', 1)[1].removeprefix('test_').partition('[')
    return f'{lane[:-1]}/{name}' if lane else name


def chosen(item):
    """Whether the suite runs this case (see tests/lib/run)."""
    names = {tap_name(item.nodeid), tap_name(item.nodeid).split('/')[-1]}
    only = os.environ.get('CASES_ONLY', '').split()
    return bool(names & set(only)) if only else not names & set(os.environ.get('CASES_NOT', '').split())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """The cases of a lane are together: its servers start once."""
    def lane_of(item):
        return item.callspec.params.get('lane', '') if hasattr(item, 'callspec') else ''
    items[:] = sorted(filter(chosen, items), key=lane_of)


class Tap:
    """Reports each case when its last step has ended."""
    count, failed = 0, {}

    def pytest_runtest_logreport(self, report):
        name = tap_name(report.nodeid)
        if report.failed:
            self.failed[name] = True
            say('FAILED: ' + name + ': ' + report.longreprtext)
            for process in running:
                say(f'{process.log}: ' + process.said()[-2000:])
        if report.when == 'teardown' or report.skipped:
            if report.when != 'teardown':
                self.skip = f' # SKIP {report.longrepr[2].removeprefix("Skipped: ")}' if report.skipped else ''
                return
            self.count += 1
            print('not ok' if name in self.failed else 'ok', f'{self.count} - {name}{self.skip}', flush=True)
        elif report.when == 'setup':
            self.skip = ''

    def pytest_collectreport(self, report):
        if report.failed:
            say(report.longreprtext)
            print('Bail out! the cases cannot be collected', flush=True)

    def pytest_sessionfinish(self, exitstatus):
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            print(f'1..{self.count}', flush=True)


def say(text):
    print(re.sub('^', '# ', text.rstrip(), flags=re.M), flush=True)


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    config.pluginmanager.unregister(name='terminalreporter')
    config.pluginmanager.register(Tap())


# ---- processes ----

def outcome(*command, env=(), **more):
    """Status and output of a command."""
    got = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                         stderr=subprocess.STDOUT, errors='replace', timeout=600,
                         env={**os.environ, **dict(env)}, **more)
    return got.returncode, got.stdout


def run(*command, status=0, says=(), env=(), **more):
    """What a command prints; it must end with this status, and print each of these texts."""
    got, out = outcome(*command, env=env, **more)
    shown = f'{" ".join(map(str, command))}: status {got}: {out}'
    assert got == status, shown
    for text in [says] if isinstance(says, str) else says:
        assert text in out, f'{text!r} is missing: {shown}'
    return out


def complains(status, text, *command, **more):
    """The command must fail with this status and one line that has this text."""
    out = run(*command, status=status, says=text, **more)
    assert out.count('\n') == 1, f'not one line: {out}'
    return out


def limited(limit, bounded=True):
    """Before a command: with this limit of ulimit; bounded: and no right to exceed one of locked memory."""
    bound = ['setpriv', '--bounding-set=-ipc_lock'] if bounded and os.getuid() == 0 else []
    return [*bound, 'bash', '-c', f'ulimit {limit} && exec "$@"', '-']


ROOTLESS = ['unshare', '--user', '--map-root-user']
needs_rootless = pytest.mark.skipif(outcome(*ROOTLESS, 'true')[0] != 0, reason='no user namespaces')


class Process(subprocess.Popen):
    """A process whose output is in a log, and that is ended with the fixture that started it."""

    def __init__(self, log, *command, env=(), **more):
        self.log = log
        with open(log, 'w') as out:
            super().__init__(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                             env={**os.environ, **dict(env)}, **more)
        running.append(self)

    def said(self):
        return self.log.read_text(errors='replace')

    def end(self, number=signal.SIGTERM):
        """Ends it, and returns its status."""
        if self in running:
            running.remove(self)
        self.send_signal(number)
        return self.wait()


class Starter:
    """Starts processes in a folder, and ends them in the opposite order."""

    def __init__(self, work):
        self.work, self.mine = work, []

    def __call__(self, *command, **more):
        process = Process(self.work / f'log{len(self.mine)}', *command, **more)
        self.mine.append(process)
        return process

    def server(self, *command, env=(), ready=True, **more):
        """A process that has reported (sd_notify) that it serves."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
            notices.bind(f'{folder}/notices')
            process = self(*command, env={**dict(env), 'NOTIFY_SOCKET': f'{folder}/notices'}, **more)
            ended = os.pidfd_open(process.pid)
            while True:
                heard, _, _ = select.select([notices, ended], [], [])
                if notices not in heard:
                    os.close(ended)
                    raise AssertionError(f'{" ".join(map(str, command))} does not start: {process.said()}')
                process.ready = notices.recv(4096).decode()
                if 'READY=1' in process.ready:
                    os.close(ended)
                    return process

    def end(self):
        for process in reversed(self.mine):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
            process.end()


@pytest.fixture(scope='module')
def work():
    """A folder, in memory if possible."""
    memory = '/dev/shm' if os.access('/dev/shm', os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix='bmi.', dir=memory) as folder:
        set_hypothesis_home_dir(f'{folder}/hypothesis')
        yield pathlib.Path(folder)


@pytest.fixture
def start(work):
    """Starts processes of one case."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=work))
    starter = Starter(folder)
    yield starter
    starter.end()
    shutil.rmtree(folder)


def until(condition):
    """Waits for a state, without a limit but that of the test."""
    while not (value := condition()):
        select.select([], [], [], 0.05)
    return value


# ---- lanes ----

class Lane:
    """A network: commands, and addresses of servers.  Over Elan4 servers are on nodes from 0 on, clients on node 16."""

    def __init__(self, name, folder):
        self.name, self.folder, self.servers = name, folder, itertools.count()
        os.environ['BMI_ELAN4_SERVER_ADDR'] = ','.join(f'{n}=127.0.0.1:{FIRST_PORT + 48 + n}' for n in range(16))
        os.environ['BMI_ELAN4_LOG'] = f'{folder}/elan4.log'

    def client(self, *command, node=16):
        """A command in this network."""
        if self.name == 'elan4':
            return ['emul/elan4/emuelan4', '--dir', f'{self.folder}/elan4', '--node', node, *command]
        return [EMU] * (self.name == 'ib') + [*command]

    def address(self):
        """The address of one more server."""
        if self.name == 'elan4':
            return f'elan4://{next(self.servers)}:2'
        return 'ib://' * (self.name == 'ib') + f'127.0.0.1:{next(PORTS)}'

    def perf(self, mode, *arguments, node=16):
        """A command bmi-perf, each word an argument."""
        words = f'{"tcp-" if self.name == "tcp" else ""}{mode}'.split()
        return self.client(PERF, *words, *arguments, node=node)

    def serve(self, start, address, *options):
        """A server of bmi-perf."""
        server = start.server(*self.perf('server', address, *options, node=re.search(r'(\d+):\d', address)[1]))
        server.address = address
        return server


def over(*lanes):
    """A case for each of these lanes."""
    return pytest.mark.parametrize('lane', lanes, indirect=True, scope='module')


@pytest.fixture(scope='module')
def lane(request, work):
    if request.param == 'elan4' and not os.access('emul/elan4/emuelan4', os.X_OK):
        pytest.skip('this build has no software Elan4')
    return Lane(request.param, tempfile.mkdtemp(dir=work))


@pytest.fixture(scope='module')
def servers(lane, work):
    """Two servers of bmi-perf in a lane."""
    starter = Starter(pathlib.Path(tempfile.mkdtemp(dir=work)))
    yield [lane.serve(starter, lane.address()) for _ in range(2)]
    starter.end()
