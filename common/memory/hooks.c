/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Hooks by code in the C library.  A system call is there `mov $NUMBER,%eax; syscall`, and in
 * syscall() `mov 8(%rsp),%r9; syscall`.  The first of the two instructions, of five bytes, is
 * replaced by a jump to a stub near the library:
 *
 *     the replaced instruction
 *     call of the thunk, which calls on_call() and keeps all registers except rax
 *     jump behind the system call if on_call() has made the call, else to it
 *
 * So calls inside the C library, as of free(), are seen, and no function is rewritten: each
 * goes on with the result as before.  Code of another form has no hook.  try_out() tests that
 * calls of the program and its allocator arrive; without them nothing is hooked.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "memory/hooks.h"

#if defined(__x86_64__) && defined(__LP64__) && defined(__GLIBC__) &&                          \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <dlfcn.h>
#include <link.h>
#include <linux/membarrier.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#define PAGE       4096UL
#define NEAR       (1UL << 30)        /* most bytes from the libraries to the stubs */
#define STEP       (16UL << 20)       /* between places tried for the stubs */
#define LARGE      ((size_t)64 << 20) /* allocators map memory for one block of this length */
#define MOVE       5                  /* bytes of the replaced instruction */
#define STUB       40                 /* bytes of a stub, at most */
#define CODES      32
#define BELOW_HEAP ((void *)PAGE)

static const int calls[] = {SYS_munmap, SYS_mmap,  SYS_mremap,         SYS_madvise,
                            SYS_brk,    SYS_shmat, SYS_process_madvise};

/* Code that stays as long as the hooks work: hooked places, and beginnings of functions. */
static struct {
    const void *at;
    uint64_t is;
} code[CODES];
static unsigned codes;
static uint8_t *stubs, *next_stub;
static void (*_Atomic receiver)(uintptr_t start, uintptr_t end); /* NULL: stopped */

/* Not in all versions of the C library without libdl, which the RDMA libraries load. */
extern __typeof__(dlopen) dlopen __attribute__((weak));
extern __typeof__(dladdr) dladdr __attribute__((weak));

/* ---- a call ---- */

static long make_call(long number, const uintptr_t *a)
{
    register uintptr_t r10 __asm__("r10") = a[3], r8 __asm__("r8") = a[4],
                           r9 __asm__("r9") = a[5];

    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return number;
}

static bool is_hooked(long number)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (calls[i] == number)
            return true;
    return false;
}

/* Reports the pages of a range. */
static void report(uintptr_t start, uintptr_t length)
{
    void (*changed)(uintptr_t, uintptr_t) = atomic_load(&receiver);
    uintptr_t end = start + length, rounded = (end + PAGE - 1) & -PAGE;

    if (changed != NULL && length > 0)
        changed(start & -PAGE, end < start || rounded < end ? UINTPTR_MAX : rounded);
}

/* Returns true if an advice may take pages away, as unknown ones may. */
static bool discards(uintptr_t advice)
{
    return advice > MADV_WILLNEED && (advice < MADV_DONTFORK || advice > 23 /* POPULATE */);
}

/* Returns what a call's report afterwards needs: the length of a segment, to the end of memory
 * if unknown; the end of the heap. */
static uintptr_t prepare_report(long number, const uintptr_t *a)
{
    struct shmid_ds segment;

    if (number == SYS_shmat)
        return shmctl((int)a[0], IPC_STAT, &segment) == 0 ? segment.shm_segsz : UINTPTR_MAX;
    return number == SYS_brk ? (uintptr_t)make_call(SYS_brk, (const uintptr_t[6]){0}) : 0;
}

static void report_before(long number, const uintptr_t *a, uintptr_t seen)
{
    switch (number) {
    case SYS_munmap:
        return report(a[0], a[1]);
    case SYS_madvise:
        return discards(a[2]) ? report(a[0], a[1]) : (void)0;
    case SYS_mmap:
        return (a[3] & MAP_FIXED) != 0 ? report(a[0], a[1]) : (void)0;
    case SYS_mremap:
        if ((a[3] & MREMAP_FIXED) != 0)
            report(a[4], a[2]);
        return report(a[0], a[1]);
    case SYS_shmat:
        return (a[2] & SHM_REMAP) != 0 ? report(a[1], seen) : (void)0;
    case SYS_brk:
        return a[0] != 0 && a[0] < seen ? report(a[0], seen - a[0]) : (void)0;
    default: /* process_madvise: of the ranges in a list */
        return report(0, UINTPTR_MAX);
    }
}

/* Reports memory that has been mapped, in case the end of its predecessor was not seen. */
static void report_behind(long number, const uintptr_t *a, uintptr_t seen, uintptr_t at)
{
    if (at > -PAGE)
        return; /* an error */
    if (number == SYS_mmap)
        report(at, a[1]);
    else if (number == SYS_mremap)
        report(at, a[2]);
    else if (number == SYS_shmat)
        report(at, seen);
    else if (number == SYS_brk && at > seen)
        report(seen, at - seen);
}

struct outcome {
    long value; /* if not made: the number of the call */
    long made;
};

/* Makes a call that changes mappings, with its reports.  Runs in the place of the system call:
 * perhaps with locks of the C library held, and in signal handlers. */
static struct outcome on_call(long number, const uintptr_t *a) __asm__("rme_hooks_on_call")
    __attribute__((used));

static struct outcome on_call(long number, const uintptr_t *a)
{
    struct outcome outcome = {number, 0};
    int kept = errno;
    uintptr_t seen;

    if (atomic_load(&receiver) == NULL || !is_hooked(number))
        return outcome;
    seen = prepare_report(number, a);
    report_before(number, a, seen);
    outcome = (struct outcome){make_call(number, a), 1};
    report_behind(number, a, seen, (uintptr_t)outcome.value);
    errno = kept;
    return outcome;
}

/* Calls on_call() with the number in rax and the arguments in the registers of a system call.
 * The zero flag says that no call was made.  The compiler of the hooked code relies on all
 * registers but rax, rcx and r11; the C library uses no vector registers beyond SSE there. */
__asm__(".text\n"
        ".type rme_hooks_thunk, @function\n"
        "rme_hooks_thunk:\n"
        "    push %rbp\n"
        "    mov %rsp, %rbp\n"
        "    push %r9\n"
        "    push %r8\n"
        "    push %r10\n"
        "    push %rdx\n"
        "    push %rsi\n"
        "    push %rdi\n"
        "    mov %rax, %rdi\n"
        "    mov %rsp, %rsi\n"
        "    sub $512, %rsp\n"
        "    and $-16, %rsp\n"
        "    fxsave (%rsp)\n"
        "    call rme_hooks_on_call\n"
        "    fxrstor (%rsp)\n"
        "    test %rdx, %rdx\n"
        "    lea -48(%rbp), %rsp\n"
        "    pop %rdi\n"
        "    pop %rsi\n"
        "    pop %rdx\n"
        "    pop %r10\n"
        "    pop %r8\n"
        "    pop %r9\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size rme_hooks_thunk, . - rme_hooks_thunk\n");
extern const char rme_hooks_thunk[] __attribute__((visibility("hidden")));

/* ---- installation ---- */

static bool keep(const void *at)
{
    if (codes == CODES)
        return false;
    code[codes].at = at;
    memcpy(&code[codes++].is, at, sizeof(code->is));
    return true;
}

/* Writes the distance of a jump or an access, and returns the place behind. */
static uint8_t *put_distance(uint8_t *at, const uint8_t *target)
{
    int32_t distance = (int32_t)(target - (at + sizeof(distance)));

    memcpy(at, &distance, sizeof(distance));
    return at + sizeof(distance);
}

static uint8_t *put(uint8_t *at, const char *bytes, size_t length)
{
    memcpy(at, bytes, length);
    return at + length;
}

/* Writes a stub, whose red zone is that of the hooked code. */
static void write_stub(uint8_t *stub, const uint8_t *site)
{
    stub = put(stub, (const char *)site, MOVE);
    stub = put(stub, "\x48\x8d\x64\x24\x80", 5);                /* lea -128(%rsp),%rsp */
    stub = put_distance(put(stub, "\xff\x15", 2), stubs);       /* call *stubs(%rip) */
    stub = put(stub, "\x48\x8d\xa4\x24\x80\0\0\0", 8);          /* lea 128(%rsp),%rsp */
    stub = put_distance(put(stub, "\x0f\x84", 2), site + MOVE); /* jz */
    (void)put_distance(put(stub, "\xe9", 1), site + MOVE + 2);  /* jmp */
}

/* Makes all processors fetch changed code anew.  Not by syscall(), which may be changing. */
static void sync_cores(int command)
{
    (void)make_call(SYS_membarrier, (const uintptr_t[6]){(uintptr_t)command});
}

/* Replaces an instruction under which other threads may run: by a jump to itself, behind which
 * the rest is exchanged, and then by the jump. */
static void replace(uint8_t *site, const uint8_t *jump)
{
    typedef uint16_t __attribute__((aligned(1), may_alias)) half;
    half first;

    memcpy(&first, jump, sizeof(first));
    *(volatile half *)site = 0xfeeb;
    sync_cores(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE);
    memcpy(site + sizeof(first), jump + sizeof(first), MOVE - sizeof(first));
    sync_cores(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE);
    *(volatile half *)site = first;
    sync_cores(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE);
}

/* Hooks one place.  False: a jump does not reach the stubs, its first half crosses a line of
 * the cache and could be seen half written, or there are too many. */
static bool hook(uint8_t *site)
{
    uint8_t jump[MOVE] = {0xe9}, *stub = next_stub;
    int64_t distance = stub - (site + MOVE);
    int32_t low = (int32_t)distance;

    if (distance != low || ((uintptr_t)site & 63) == 63 || stub + STUB > stubs + PAGE)
        return false;
    next_stub += STUB;
    write_stub(stub, site);
    memcpy(jump + 1, &low, sizeof(low));
    replace(site, jump);
    return keep(site);
}

/* Returns the number of the hooked call at a place of the form, 0 for any number, or -1. */
static long call_at(const uint8_t *at)
{
    int32_t number;

    if (at[MOVE] != 0x0f || at[MOVE + 1] != 0x05)
        return -1;
    if (memcmp(at, "\x4c\x8b\x4c\x24\x08", MOVE) == 0)
        return 0;
    memcpy(&number, at + 1, sizeof(number));
    /* a prefix REX would make it another register */
    return at[0] == 0xb8 && (at[-1] & 0xf0) != 0x40 && is_hooked(number) ? number : -1;
}

/* Maps the page of the stubs within reach of a library. */
static bool map_stubs(uintptr_t library)
{
    for (uintptr_t away = STEP; stubs == NULL && away < NEAR && away < library; away += STEP) {
        uint8_t *at = mmap((void *)(library - away), PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (at == MAP_FAILED)
            return false;
        if ((uintptr_t)at - (library - NEAR) < 2 * NEAR)
            stubs = at;
        else
            (void)munmap(at, PAGE);
    }
    if (stubs == NULL)
        return false;
    next_stub = put(stubs, (const char *)&(const char *){rme_hooks_thunk}, sizeof(char *));
    return true;
}

/* Hooks the calls in a mapped part of a library.  Returns how many unmap, or -1. */
static int hook_part(uint8_t *start, size_t length)
{
    uint8_t *page = (uint8_t *)((uintptr_t)start & -PAGE), *end = start + length;
    int unmaps = 0;

    if (mprotect(page, (size_t)(end - page), PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
        return -1;
    for (uint8_t *at = start + 1; at + sizeof(code->is) <= end && unmaps >= 0; at++) {
        long number = call_at(at);

        if (number >= 0)
            unmaps = hook(at) ? unmaps + (number == SYS_munmap) : -1;
    }
    return mprotect(page, (size_t)(end - page), PROT_READ | PROT_EXEC) == 0 ? unmaps : -1;
}

/* Hooks the C library and the loader.  Adds 1 to *arg for each of them; not 0 is an error. */
static int hook_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash != NULL ? slash + 1 : info->dlpi_name;
    int unmaps = 0;

    (void)size;
    if (strncmp(name, "libc.so", 7) != 0 && strncmp(name, "ld-linux", 8) != 0)
        return 0;
    for (int i = 0; i < info->dlpi_phnum && unmaps >= 0; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;

        if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0)
            continue;
        if (stubs == NULL && !map_stubs(start))
            return -1;
        unmaps = hook_part((uint8_t *)start, part->p_memsz);
    }
    ++*(int *)arg;
    return unmaps > 0 ? 0 : -1;
}

/* Keeps the code of this file in the process: the program stays anyway. */
static bool stay(void)
{
    const void *program = (const void *)getauxval(AT_PHDR);
    Dl_info own, main;

    if (dlopen == NULL || dladdr == NULL || dladdr(code, &own) == 0 ||
        dladdr(program, &main) == 0)
        return false;
    return own.dli_fbase == main.dli_fbase ||
           dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) != NULL;
}

/* Keeps the beginnings of functions, which other libraries may replace. */
static bool keep_functions(void)
{
    const void *function[] = {(void *)munmap, (void *)mmap, (void *)mremap, (void *)madvise,
                              (void *)brk,    (void *)sbrk, (void *)shmat,  (void *)syscall};
    bool kept = true;

    for (size_t i = 0; i < sizeof(function) / sizeof(function[0]); i++)
        kept = kept && keep(function[i]);
    return kept;
}

/* Returns what is lacking, or NULL.  Hooks that have been made stay. */
static const char *install(void)
{
    int libraries = 0;

    if (!stay())
        return "a library that stays loaded";
    sync_cores(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE);
    errno = 0;
    if (dl_iterate_phdr(hook_library, &libraries) != 0 || libraries != 2)
        return errno != 0 ? "code that may be changed" : "a C library of known form";
    (void)mprotect(stubs, PAGE, PROT_READ | PROT_EXEC);
    return keep_functions() ? NULL : "room";
}

/* ---- the test ---- */

static atomic_uintptr_t awaited; /* beginning of the range that a call should report */
static atomic_bool arrived;
static atomic_uintptr_t large_start, large_end; /* the last large range reported */

static void on_trial(uintptr_t start, uintptr_t end)
{
    if (start == atomic_load(&awaited))
        atomic_store(&arrived, true);
    if (end - start < LARGE || end == UINTPTR_MAX)
        return;
    atomic_store(&large_start, start);
    atomic_store(&large_end, end);
}

static bool has_arrived(void)
{
    return atomic_exchange(&arrived, false);
}

/* Returns true if the program's memory comes by hooked calls. */
static bool sees_allocator(void)
{
    void *volatile block;
    uintptr_t at;
    bool seen;

    atomic_store(&large_end, 0);
    block = malloc(LARGE);
    at = (uintptr_t)block;
    seen = at >= atomic_load(&large_start) && at < atomic_load(&large_end);

    free(block);
    return block != NULL && seen;
}

/* Returns true if the functions that this library and the program call are hooked. */
static bool sees_functions(void)
{
    const int rights = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS;
    void *page = mmap(NULL, PAGE, rights, kind, -1, 0);
    bool seen = page != MAP_FAILED;

    if (!seen)
        return false;
    atomic_store(&awaited, (uintptr_t)page);
    (void)has_arrived();
    seen = madvise(page, PAGE, MADV_DONTNEED) == 0 && has_arrived();
    seen = syscall(SYS_madvise, page, PAGE, MADV_DONTNEED) == 0 && has_arrived() && seen;
    seen = mremap(page, PAGE, PAGE, 0) == page && has_arrived() && seen;
    seen = mmap(page, PAGE, rights, kind | MAP_FIXED, -1, 0) == page && has_arrived() && seen;
    seen = shmat(-1, page, SHM_REMAP) == (void *)-1 && has_arrived() && seen;
    seen = munmap(page, PAGE) == 0 && has_arrived() && seen;
    atomic_store(&awaited, (uintptr_t)BELOW_HEAP); /* the heap stays as it is */
    (void)brk(BELOW_HEAP);
    return has_arrived() && seen;
}

int rme_hooks_start(void (*changed)(uintptr_t start, uintptr_t end), const char **lacks)
{
    static bool tried;
    static const char *lacking;

    if (!tried)
        lacking = install();
    tried = true;
    *lacks = lacking;
    if (lacking != NULL)
        return -ENOTSUP;
    atomic_store(&receiver, on_trial);
    if (!rme_hooks_intact() || !sees_functions())
        *lacks = "functions of the C library that nothing else replaces";
    else if (!sees_allocator())
        *lacks = "an allocator that uses the C library";
    atomic_store(&receiver, *lacks == NULL ? changed : NULL);
    return *lacks == NULL ? 0 : -ENOTSUP;
}

void rme_hooks_stop(void)
{
    atomic_store(&receiver, NULL);
}

bool rme_hooks_intact(void)
{
    for (unsigned i = 0; i < codes; i++)
        if (memcmp(code[i].at, &code[i].is, sizeof(code[i].is)) != 0)
            return false;
    return true;
}

#else

int rme_hooks_start(void (*changed)(uintptr_t start, uintptr_t end), const char **lacks)
{
    (void)changed;
    *lacks = "x86-64, the GNU C library, and no sanitizer";
    return -ENOTSUP;
}

void rme_hooks_stop(void)
{
}

bool rme_hooks_intact(void)
{
    return false;
}

#endif
