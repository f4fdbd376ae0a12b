#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What the software HCA does and pyverbs's own tests do not ask: mistakes and what follows them, rights,
limits, lost messages. Run by foreign.sh under emuverbs, where Debian's python3-pyverbs is there.
"""
import ctypes
import errno
import mmap
import time
import unittest

import pyverbs.enums as e
from pyverbs.addr import AH, AHAttr
from pyverbs.cq import CQ
from pyverbs.device import DM, AllocDmAttr, Context
from pyverbs.mr import DMMR, MR, MW, MWBindInfo
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR
import pyverbs.device

ALL = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ |
       e.IBV_ACCESS_REMOTE_ATOMIC | e.IBV_ACCESS_MW_BIND)
REMOTE = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
SIZE = 8192
QKEY = 0x1234


class Side:
    """A queue pair with what it needs."""

    def __init__(self, kind=e.IBV_QPT_RC, access=ALL, srq_wr=0, deep=16, rights=REMOTE, sig_all=1):
        self.ctx = Context(name=pyverbs.device.get_device_list()[0].name.decode())
        self.pd = PD(self.ctx)
        self.cq = CQ(self.ctx, 64, None, None, 0)
        self.mr = MR(self.pd, SIZE, access)
        self.srq = SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=srq_wr, max_sge=1))) if srq_wr else None
        cap = QPCap(deep, deep, 2, 2, 32)
        init = QPInitAttr(qp_type=kind, scq=self.cq, rcq=self.cq, srq=self.srq, cap=cap, sq_sig_all=sig_all)
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = rights
        attr.qkey = QKEY
        self.qp = QP(self.pd, init, attr)

    def join(self, other, rnr_retry=7):
        attr = QPAttr(port_num=1)
        attr.dest_qp_num = other.qp.qp_num
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
        attr.min_rnr_timer = 1
        attr.timeout = 14
        attr.retry_cnt = 7
        attr.rnr_retry = rnr_retry
        attr.ah_attr = AHAttr(dlid=self.ctx.query_port(1).lid, port_num=1)
        self.qp.to_rts(attr)
        return self

    def recv(self, wr_id=1, length=SIZE, offset=0, lkey=None):
        sge = SGE(self.mr.buf + offset, length, self.mr.lkey if lkey is None else lkey)
        (self.srq or self.qp).post_recv(RecvWR(wr_id=wr_id, num_sge=1, sg=[sge]))

    def wr(self, opcode, length=64, wr_id=2, lkey=None, flags=e.IBV_SEND_SIGNALED, address=None):
        sge = SGE(address or self.mr.buf, length, self.mr.lkey if lkey is None else lkey)
        return SendWR(wr_id=wr_id, opcode=opcode, num_sge=1, sg=[sge], send_flags=flags)

    def send(self, length=64, **options):
        self.qp.post_send(self.wr(e.IBV_WR_SEND, length, **options))

    def rdma(self, opcode, rkey, address, length=64, **options):
        wr = self.wr(opcode, length, **options)
        wr.set_wr_rdma(rkey, address)
        self.qp.post_send(wr)

    def wc(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            n, found = self.cq.poll(1)
            if n:
                return found[0]
        raise AssertionError('no completion')

    def status(self):
        return self.wc().status

    def nothing(self):
        return self.cq.poll(1)[0] == 0

    def state(self):
        return self.qp.query(e.IBV_QP_STATE)[0].qp_state

    def event(self):
        event = self.ctx.get_async_event()
        event.ack()  # else the queue pair is never destroyed
        return event.event_type


def pair(kind=e.IBV_QPT_RC, rnr_retry=7, **options):
    a, b = Side(kind, **options), Side(kind, **options)
    return a.join(b, rnr_retry), b.join(a)


def page(protection=mmap.PROT_READ | mmap.PROT_WRITE):
    memory = mmap.mmap(-1, SIZE, prot=protection)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


LIBC = ctypes.CDLL(None, use_errno=True)


def protect(address, protection):
    if LIBC.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(SIZE), protection):
        raise OSError(ctypes.get_errno(), 'mprotect')


class Connections(unittest.TestCase):
    def ends(self, a, b, mine, theirs=e.IBV_QPS_ERR):
        self.assertEqual(a.status(), mine)
        self.assertEqual(a.state(), e.IBV_QPS_ERR)
        self.assertEqual(b.state(), theirs)

    def test_write_without_the_right_of_the_region(self):
        a, b = pair(access=e.IBV_ACCESS_LOCAL_WRITE)
        a.rdma(e.IBV_WR_RDMA_WRITE, b.mr.rkey, b.mr.buf)
        self.ends(a, b, e.IBV_WC_REM_ACCESS_ERR)
        self.assertEqual(b.event(), e.IBV_EVENT_QP_ACCESS_ERR)

    def test_read_without_the_right_of_the_queue_pair(self):
        a, b = pair(rights=e.IBV_ACCESS_REMOTE_WRITE)
        a.rdma(e.IBV_WR_RDMA_READ, b.mr.rkey, b.mr.buf)
        self.ends(a, b, e.IBV_WC_REM_INV_REQ_ERR)
        self.assertEqual(b.event(), e.IBV_EVENT_QP_REQ_ERR)

    def test_write_beyond_the_end(self):
        a, b = pair()
        b.mr.write('x' * SIZE, SIZE)
        a.rdma(e.IBV_WR_RDMA_WRITE, b.mr.rkey, b.mr.buf + SIZE - 63)
        self.ends(a, b, e.IBV_WC_REM_ACCESS_ERR)
        self.assertEqual(b.mr.read(SIZE, 0), b'x' * SIZE)

    def test_write_with_an_lkey(self):
        a, b = pair()
        a.rdma(e.IBV_WR_RDMA_WRITE, b.mr.lkey, b.mr.buf)
        self.ends(a, b, e.IBV_WC_REM_ACCESS_ERR)

    def test_send_with_a_wrong_lkey(self):
        a, b = pair()
        b.recv()
        a.send(lkey=a.mr.lkey ^ 1)
        self.ends(a, b, e.IBV_WC_LOC_PROT_ERR, e.IBV_QPS_RTS)
        self.assertTrue(b.nothing())

    def test_receive_with_a_wrong_lkey(self):
        a, b = pair()
        b.recv(lkey=b.mr.lkey ^ 1)
        a.send()
        self.ends(a, b, e.IBV_WC_REM_OP_ERR)
        self.assertEqual(b.status(), e.IBV_WC_LOC_PROT_ERR)

    def test_receive_that_is_too_small(self):
        a, b = pair()
        b.recv(length=63)
        a.send()
        self.ends(a, b, e.IBV_WC_REM_INV_REQ_ERR)
        self.assertEqual(b.status(), e.IBV_WC_LOC_LEN_ERR)

    def test_no_receive(self):
        a, b = pair(rnr_retry=0)
        a.send()
        self.ends(a, b, e.IBV_WC_RNR_RETRY_EXC_ERR, e.IBV_QPS_RTS)

    def test_a_receive_that_comes_late(self):
        a, b = pair()
        a.mr.write('y' * 64, 64)
        a.send()
        self.assertTrue(a.nothing())
        b.recv()
        self.assertEqual(a.status(), e.IBV_WC_SUCCESS)
        self.assertEqual(b.status(), e.IBV_WC_SUCCESS)
        self.assertEqual(b.mr.read(64, 0), b'y' * 64)

    def test_nobody_there(self):
        a, b = pair()
        b.qp.close()
        a.send()
        self.assertEqual(a.status(), e.IBV_WC_RETRY_EXC_ERR)
        self.assertEqual(a.state(), e.IBV_QPS_ERR)

    def test_all_is_flushed_in_order(self):
        a, b = pair()
        for i in range(3):
            a.recv(wr_id=10 + i)
        a.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
        a.send(wr_id=20)
        found = [a.wc() for _ in range(4)]
        self.assertEqual([w.wr_id for w in found], [10, 11, 12, 20])
        self.assertEqual({w.status for w in found}, {e.IBV_WC_WR_FLUSH_ERR})
        self.assertTrue(a.nothing())

    def test_reset_forgets(self):
        a, b = pair()
        b.recv()
        a.send()
        b.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
        self.assertTrue(b.nothing())
        self.assertEqual(b.state(), e.IBV_QPS_RESET)

    def test_a_place_is_free_when_it_is_polled(self):
        a, b = pair(deep=1, sig_all=0)
        a.rdma(e.IBV_WR_RDMA_WRITE, b.mr.rkey, b.mr.buf)
        with self.assertRaises(PyverbsRDMAError) as caught:
            a.rdma(e.IBV_WR_RDMA_WRITE, b.mr.rkey, b.mr.buf)
        self.assertEqual(caught.exception.error_code, errno.ENOMEM)
        self.assertEqual(a.status(), e.IBV_WC_SUCCESS)
        a.rdma(e.IBV_WR_RDMA_WRITE, b.mr.rkey, b.mr.buf)
        self.assertEqual(a.status(), e.IBV_WC_SUCCESS)

    def test_atomic_at_an_odd_address(self):
        a, b = pair()
        wr = a.wr(e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8)
        wr.set_wr_atomic(b.mr.rkey, b.mr.buf + 4, 1, 0)
        with self.assertRaises(PyverbsRDMAError) as caught:
            a.qp.post_send(wr)
        self.assertEqual(caught.exception.error_code, errno.EINVAL)
        self.assertEqual(a.state(), e.IBV_QPS_RTS)

    def test_the_sender_is_told_first(self):
        a, b = pair()
        for _ in range(50):
            b.recv()
            a.send()
            self.assertEqual(b.status(), e.IBV_WC_SUCCESS)
            self.assertFalse(a.nothing())


class Windows(unittest.TestCase):
    def setUp(self):
        self.a, self.b = pair()
        self.mw = MW(self.b.pd, e.IBV_MW_TYPE_2)

    def tearDown(self):
        self.mw.close()

    def bind(self, offset=0, length=4096, access=e.IBV_ACCESS_REMOTE_WRITE):
        wr = SendWR(opcode=e.IBV_WR_BIND_MW, num_sge=0, send_flags=e.IBV_SEND_SIGNALED)
        wr.set_bind_wr(self.mw, MWBindInfo(self.b.mr, self.b.mr.buf + offset, length, access))
        self.b.qp.post_send(wr)
        self.assertEqual(self.b.status(), e.IBV_WC_SUCCESS)
        self.rkey = wr.rkey

    def write(self, opcode=e.IBV_WR_RDMA_WRITE, offset=0):
        self.a.rdma(opcode, self.rkey, self.b.mr.buf + offset)
        return self.a.status()

    def test_within(self):
        self.bind()
        self.assertEqual(self.write(offset=4096 - 64), e.IBV_WC_SUCCESS)

    def test_past_its_end(self):
        self.bind()
        self.assertEqual(self.write(offset=4096 - 63), e.IBV_WC_REM_ACCESS_ERR)

    def test_before_its_start(self):
        self.bind(offset=64)
        self.assertEqual(self.write(), e.IBV_WC_REM_ACCESS_ERR)

    def test_without_the_right(self):
        self.bind()
        self.assertEqual(self.write(e.IBV_WR_RDMA_READ), e.IBV_WC_REM_ACCESS_ERR)

    def test_by_another_queue_pair(self):
        self.bind()
        other = Side()
        mine = QP(self.b.pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.b.cq, rcq=self.b.cq, cap=QPCap()),
                  self.attributes())
        there = Side.__new__(Side)
        there.__dict__.update(self.b.__dict__, qp=mine)
        other.join(there)
        there.join(other)
        other.rdma(e.IBV_WR_RDMA_WRITE, self.rkey, self.b.mr.buf)
        self.assertEqual(other.status(), e.IBV_WC_REM_ACCESS_ERR)
        self.assertEqual(self.write(), e.IBV_WC_SUCCESS)

    @staticmethod
    def attributes():
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = REMOTE
        return attr

    def test_invalidated_by_its_user(self):
        self.bind()
        self.b.recv()
        wr = self.a.wr(e.IBV_WR_SEND_WITH_INV, 8)
        wr.imm_data = self.rkey
        self.a.qp.post_send(wr)
        self.assertEqual(self.a.status(), e.IBV_WC_SUCCESS)
        wc = self.b.wc()
        self.assertEqual((wc.status, wc.byte_len), (e.IBV_WC_SUCCESS, 8))
        self.assertTrue(wc.wc_flags & e.IBV_WC_WITH_INV)
        self.assertEqual(self.write(), e.IBV_WC_REM_ACCESS_ERR)

    def test_invalidated_by_its_owner(self):
        self.bind()
        wr = SendWR(opcode=e.IBV_WR_LOCAL_INV, num_sge=0, send_flags=e.IBV_SEND_SIGNALED)
        wr.imm_data = self.rkey
        self.b.qp.post_send(wr)
        self.assertEqual(self.b.status(), e.IBV_WC_SUCCESS)
        self.assertEqual(self.write(), e.IBV_WC_REM_ACCESS_ERR)


class SharedQueues(unittest.TestCase):
    def test_limit(self):
        a, b = Side(), Side(srq_wr=8)
        a.join(b)
        b.join(a)
        for i in range(4):
            b.recv(wr_id=i)
        b.srq.modify(SrqAttr(srq_limit=3), e.IBV_SRQ_LIMIT)
        self.assertEqual(b.srq.query().srq_limit, 3)
        for _ in range(2):
            a.send()
            self.assertEqual(b.status(), e.IBV_WC_SUCCESS)
        self.assertEqual(b.event(), e.IBV_EVENT_SRQ_LIMIT_REACHED)
        self.assertEqual(b.srq.query().srq_limit, 0)  # it is told once

    def test_limit_beyond_its_size(self):
        b = Side(srq_wr=8)
        with self.assertRaises(PyverbsRDMAError) as caught:
            b.srq.modify(SrqAttr(srq_limit=9), e.IBV_SRQ_LIMIT)
        self.assertEqual(caught.exception.error_code, errno.EINVAL)

    def test_last_request(self):
        a, b = Side(), Side(srq_wr=8)
        a.join(b)
        b.join(a)
        b.recv()
        b.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
        self.assertEqual(b.event(), e.IBV_EVENT_QP_LAST_WQE_REACHED)
        self.assertTrue(b.nothing())  # its receives are not the queue pair's

    def test_no_place(self):
        b = Side(srq_wr=2)
        b.recv()
        b.recv()
        with self.assertRaises(PyverbsRDMAError) as caught:
            b.recv()
        self.assertEqual(caught.exception.error_code, errno.ENOMEM)


class WithoutAcknowledgement(unittest.TestCase):
    def test_a_message_without_receive_is_lost(self):
        a, b = pair(e.IBV_QPT_UC)
        a.send()
        self.assertEqual(a.status(), e.IBV_WC_SUCCESS)
        b.recv()
        self.assertTrue(b.nothing())
        a.send(length=8)
        self.assertEqual(b.wc().byte_len, 8)

    def test_a_write_without_the_right_is_lost(self):
        a, b = pair(e.IBV_QPT_UC, access=e.IBV_ACCESS_LOCAL_WRITE)
        a.rdma(e.IBV_WR_RDMA_WRITE, b.mr.rkey, b.mr.buf)
        self.assertEqual(a.status(), e.IBV_WC_SUCCESS)
        self.assertEqual((a.state(), b.state()), (e.IBV_QPS_RTS, e.IBV_QPS_RTS))

    def test_no_reads(self):
        a, b = pair(e.IBV_QPT_UC)
        with self.assertRaises(PyverbsRDMAError) as caught:
            a.rdma(e.IBV_WR_RDMA_READ, b.mr.rkey, b.mr.buf)
        self.assertEqual(caught.exception.error_code, errno.EINVAL)


class Datagrams(unittest.TestCase):
    def setUp(self):
        self.a, self.b = Side(e.IBV_QPT_UD), Side(e.IBV_QPT_UD)
        self.ah = AH(self.a.pd, attr=AHAttr(dlid=self.a.ctx.query_port(1).lid, port_num=1))
        self.b.recv()

    def datagram(self, length=64, qkey=QKEY, qpn=None):
        wr = self.a.wr(e.IBV_WR_SEND, length)
        wr.set_wr_ud(self.ah, self.b.qp.qp_num if qpn is None else qpn, qkey)
        self.a.qp.post_send(wr)
        return self.a.status()

    def test_its_data_comes_after_the_header(self):
        self.a.mr.write('z' * 64, 64)
        self.assertEqual(self.datagram(), e.IBV_WC_SUCCESS)
        wc = self.b.wc()
        self.assertEqual((wc.status, wc.byte_len), (e.IBV_WC_SUCCESS, 104))
        self.assertEqual(wc.src_qp, self.a.qp.qp_num)
        self.assertEqual(self.b.mr.read(64, 40), b'z' * 64)

    def lost(self, **options):
        self.assertEqual(self.datagram(**options), e.IBV_WC_SUCCESS)
        self.assertTrue(self.b.nothing())
        self.assertEqual(self.datagram(), e.IBV_WC_SUCCESS)
        self.assertEqual(self.b.status(), e.IBV_WC_SUCCESS)

    def test_another_key_is_lost(self):
        self.lost(qkey=QKEY + 1)

    def test_to_nobody_is_lost(self):
        self.lost(qpn=self.b.qp.qp_num ^ 0x3ff)

    def test_longer_than_the_mtu_is_lost(self):
        self.lost(length=4097)

    def test_too_small_a_receive_ends_its_owner(self):
        b = self.b = Side(e.IBV_QPT_UD)
        b.recv(length=103)
        self.assertEqual(self.datagram(), e.IBV_WC_SUCCESS)
        self.assertEqual(b.status(), e.IBV_WC_LOC_LEN_ERR)
        self.assertEqual((b.state(), self.a.state()), (e.IBV_QPS_ERR, e.IBV_QPS_RTS))


class DeviceMemory(unittest.TestCase):
    def setUp(self):
        self.s = Side()
        self.dm = DM(self.s.ctx, AllocDmAttr(64))

    def refused(self, call, *arguments):
        with self.assertRaises(PyverbsRDMAError) as caught:
            call(*arguments)
        self.assertEqual(caught.exception.error_code, errno.EINVAL)

    def test_bounds(self):
        self.dm.copy_to_dm(60, b'abcd', 4)
        self.assertEqual(self.dm.copy_from_dm(60, 4), b'abcd')
        self.refused(self.dm.copy_to_dm, 64, b'abcd', 4)
        self.refused(self.dm.copy_from_dm, 60, 8)

    def test_grain(self):
        self.refused(self.dm.copy_to_dm, 2, b'abcd', 4)
        self.refused(self.dm.copy_to_dm, 0, b'ab', 2)

    def test_region_beyond_the_end(self):
        access = e.IBV_ACCESS_ZERO_BASED | e.IBV_ACCESS_LOCAL_WRITE
        self.refused(DMMR, self.s.pd, 64, access, self.dm, 4)

    def test_region_with_addresses(self):
        self.refused(DMMR, self.s.pd, 64, e.IBV_ACCESS_LOCAL_WRITE, self.dm, 0)


class OnDemand(unittest.TestCase):
    def setUp(self):
        self.a, self.b = pair()
        self.memory, self.address = page()
        self.mr = MR(self.b.pd, SIZE, ALL & ~e.IBV_ACCESS_MW_BIND | e.IBV_ACCESS_ON_DEMAND,
                     address=self.address)
        protect(self.address, 0)

    def tearDown(self):
        protect(self.address, mmap.PROT_READ | mmap.PROT_WRITE)

    def write(self):
        self.a.rdma(e.IBV_WR_RDMA_WRITE, self.mr.rkey, self.address)
        return self.a.status()

    def test_not_there_at_the_peer(self):
        self.assertEqual(self.write(), e.IBV_WC_REM_OP_ERR)
        self.assertEqual(self.b.state(), e.IBV_QPS_ERR)

    def test_there_again(self):
        protect(self.address, mmap.PROT_READ | mmap.PROT_WRITE)
        self.a.mr.write('w' * 64, 64)
        self.assertEqual(self.write(), e.IBV_WC_SUCCESS)
        self.assertEqual(self.memory[:64], b'w' * 64)

    def test_not_there_at_the_sender(self):
        self.a.recv()
        self.b.send(address=self.address, lkey=self.mr.lkey)
        self.assertEqual(self.b.status(), e.IBV_WC_LOC_PROT_ERR)
        self.assertEqual(self.a.state(), e.IBV_QPS_RTS)
        self.assertTrue(self.a.nothing())

    def test_not_there_at_the_receiver(self):
        sge = SGE(self.address, 64, self.mr.lkey)
        self.b.qp.post_recv(RecvWR(wr_id=1, num_sge=1, sg=[sge]))
        self.a.send()
        self.assertEqual(self.a.status(), e.IBV_WC_REM_OP_ERR)
        self.assertEqual(self.b.status(), e.IBV_WC_LOC_PROT_ERR)

    def advise(self, flags):
        self.b.pd.advise_mr(e._IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, flags,
                            [SGE(self.address, SIZE, self.mr.lkey)])

    def test_advice(self):
        self.advise(0)  # nobody waits for it
        with self.assertRaises(PyverbsRDMAError) as caught:
            self.advise(e._IBV_ADVISE_MR_FLAG_FLUSH)
        self.assertEqual(caught.exception.error_code, errno.EFAULT)


if __name__ == '__main__':
    unittest.main()
