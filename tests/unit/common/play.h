/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Transcripts: actions of the host, the peer and the device, and the answer of the engine.
 *
 * A line is `step; step > answer`. The answer lists the messages of the engine until it is
 * idle, results of operations, and numbers that changed. A wrong answer is printed as the line
 * that would be right. `N*` before a line repeats it; the last answer counts.
 *
 * Operations have the names a to z, the engine's handles A, B ... in the order of their first
 * messages; @ is the last one. Steps, behind `1:` with the second peer:
 *
 *   send a BYTES TAG [zone|list]   likewise recv, ask (an unexpected send); zone: in registered
 *                                  memory; list: of pieces of 1000 bytes
 *   cancel a; fetch                of the host
 *   answer a BYTES TAG; doze       fetches one message, then sends, or sleeps, at once
 *   TYPE field=value ... FLAG ...  a message of the peer (wire.h); window=BYTES adds a segment
 *   imm A; ring AT BYTES [LENGTH]  a write of the peer, into the ring at an offset
 *   keep; return                   the peer returns no credits with its messages; returns them
 *   done [N]; oldest; finish       a transfer completes, by age from the newest; all
 *   notx; room; noregs; regs       send buffers and registrations run out, or are back
 *   lack KIND; lack nothing        allocations of this kind fail
 *   slots N                        limit of transfers of the process, and of one peer
 *   cut; down; meet                ends all links, or one; another peer connects
 *   again; known; up               a lost peer requests a link, has introduced itself, is up;
 *                                  TYPE in small letters: a message before the link is up
 *   unanswered                     a connection request ends unanswered
 *   arrive CREDITS; most_rx N      a peer that offers these; limit of a link's receives
 *   have; returned; shares         adds credits, those returned since the last time, transfers
 *                                  of each peer to the answer
 *   quieted; holds BYTES           adds unsignalled transfers; checks received bytes
 *   cached                         skips the case where memory cannot be cached
 *   wait MS                        lets virtual time pass
 *   see NAME                       adds a counter to the answer
 */
#ifndef TESTS_UNIT_PLAY_H
#define TESTS_UNIT_PLAY_H

#include "scripted.h"

struct play {
    const char *name;
    const char *options; /* beside the usual ones */
    const char *hello;   /* fields of the peer's hello that are unusual */
    const char *lines;
};

/* Runs the transcripts, each as a case; returns the number of those that failed. */
int play_all(const char *group, const struct play *plays, unsigned count);

/* For tests of their own: an engine with these options and a peer with these fields of its
 * hello; steps without a comparison; the operation of a name. */
void play_begin(const char *options, const char *unusual);
void play_steps(const char *steps);
const struct posted *play_operation(char name);
uint32_t play_handle(void); /* the last one that the engine has named; 0: none */
/* Checks that each operation was reported once, and closes the engine. */
void play_end(void);

#endif
