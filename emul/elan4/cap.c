/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Capabilities: arithmetic, text forms, and the registry of created ones. */
#include "emul/elan4/emu.h"

#include <elan/elanctrl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

EMU4_EXPORT void elan_nullcap(ELAN_CAPABILITY *cap)
{
    memset(cap, 0, sizeof(*cap));
    for (unsigned i = 0; i < 4; i++)
        cap->cap_userkey.key_values[i] = (unsigned)ELAN_CAP_UNINITIALISED;
    cap->cap_version = ELAN_CAP_VERSION_NUMBER;
    cap->cap_lowcontext = cap->cap_highcontext = cap->cap_mycontext = ELAN_CAP_UNINITIALISED;
    cap->cap_lownode = cap->cap_highnode = ELAN_CAP_UNINITIALISED;
}

EMU4_EXPORT char *elan_capability_string(ELAN_CAPABILITY *cap, char *str)
{
    snprintf(str, 256,
             "[%x.%x.%x.%x] version %x type %x contexts %d-%d-%d nodes %d-%d rails %x",
             cap->cap_userkey.key_values[0], cap->cap_userkey.key_values[1],
             cap->cap_userkey.key_values[2], cap->cap_userkey.key_values[3],
             (unsigned)cap->cap_version, (unsigned)cap->cap_type, cap->cap_lowcontext,
             cap->cap_mycontext, cap->cap_highcontext, cap->cap_lownode, cap->cap_highnode,
             cap->cap_railmask);
    return str;
}

/* Returns nodes times contexts, including places without a process; 0 if the capability is
 * invalid. */
static int places(const ELAN_CAPABILITY *cap, int *nodes, int *contexts)
{
    long n = (long)cap->cap_highnode - cap->cap_lownode + 1;
    long c = (long)cap->cap_highcontext - cap->cap_lowcontext + 1;

    if (n <= 0 || c <= 0 || n > ELAN_MAX_VPS || c > ELAN_MAX_VPS || n * c > ELAN_MAX_VPS)
        return 0;
    *nodes = (int)n;
    *contexts = (int)c;
    return (int)(n * c);
}

static bool has_place(const ELAN_CAPABILITY *cap, int place)
{
    return (cap->cap_type & ELAN_CAP_TYPE_NO_BITMAP) || BT_TEST(cap->cap_bitmap, place);
}

static bool by_node(const ELAN_CAPABILITY *cap)
{
    return (cap->cap_type & ELAN_CAP_TYPE_MASK) != ELAN_CAP_TYPE_CYCLIC;
}

EMU4_EXPORT int elan_nvps(ELAN_CAPABILITY *cap)
{
    int nodes, contexts, n = 0, all = places(cap, &nodes, &contexts);

    for (int i = 0; i < all; i++)
        n += has_place(cap, i);
    return n;
}

EMU4_EXPORT ELAN_LOCATION elan_vp2location(unsigned vp, ELAN_CAPABILITY *cap)
{
    ELAN_LOCATION none = {ELAN_INVALID_NODE, ELAN_INVALID_CONTEXT};
    int nodes, contexts, all = places(cap, &nodes, &contexts);

    for (int i = cap->cap_type & ELAN_CAP_TYPE_NO_BITMAP && vp < (unsigned)all ? (int)vp : 0;
         i < all; i++) {
        if (!has_place(cap, i))
            continue;
        if (!(cap->cap_type & ELAN_CAP_TYPE_NO_BITMAP) && vp--)
            continue;
        if ((cap->cap_type & ELAN_CAP_TYPE_NO_BITMAP) && vp != (unsigned)i)
            return none;
        if (by_node(cap))
            return (ELAN_LOCATION){(unsigned short)(i / contexts),
                                   (unsigned short)(i % contexts)};
        return (ELAN_LOCATION){(unsigned short)(i % nodes), (unsigned short)(i / nodes)};
    }
    return none;
}

EMU4_EXPORT int elan_location2vp(ELAN_LOCATION location, ELAN_CAPABILITY *cap)
{
    int nodes, contexts, vp = 0, all = places(cap, &nodes, &contexts);

    if (!all || location.loc_node >= nodes || location.loc_context >= contexts)
        return -1;
    int place = by_node(cap) ? location.loc_node * contexts + location.loc_context
                             : location.loc_context * nodes + location.loc_node;
    if (!has_place(cap, place))
        return -1;
    if (cap->cap_type & ELAN_CAP_TYPE_NO_BITMAP)
        return place;
    for (int i = 0; i < place; i++)
        vp += has_place(cap, i);
    return vp;
}

EMU4_EXPORT int elan_localvps(int node, ELAN_CAPABILITY *cap, int *vps, int size)
{
    int n = 0;

    if (node < cap->cap_lownode || node > cap->cap_highnode)
        return 0;
    for (int c = cap->cap_lowcontext; c <= cap->cap_highcontext; c++) {
        ELAN_LOCATION l = {(unsigned short)(node - cap->cap_lownode),
                           (unsigned short)(c - cap->cap_lowcontext)};
        int vp = elan_location2vp(l, cap);
        if (vp < 0)
            continue;
        if (vps && n < size)
            vps[n] = vp;
        n++;
    }
    return n;
}

EMU4_EXPORT int elan_nlocal(int node, ELAN_CAPABILITY *cap)
{
    return elan_localvps(node, cap, NULL, 0);
}

EMU4_EXPORT int elan_maxlocal(ELAN_CAPABILITY *cap)
{
    int most = 0;

    for (int node = cap->cap_lownode; node <= cap->cap_highnode; node++) {
        int n = elan_nlocal(node, cap);
        most = n > most ? n : most;
    }
    return most;
}

EMU4_EXPORT int elan_rails(ELAN_CAPABILITY *cap, int *rails)
{
    int n = 0;

    for (int i = 0; i < ELAN_MAX_RAILS; i++)
        if (cap->cap_railmask >> i & 1) {
            if (rails)
                rails[n] = i;
            n++;
        }
    return n;
}

EMU4_EXPORT int elan_nrails(ELAN_CAPABILITY *cap)
{
    return elan_rails(cap, NULL);
}

EMU4_EXPORT int elan_cap_overlap(ELAN_CAPABILITY *a, ELAN_CAPABILITY *b)
{
    return a->cap_lowcontext <= b->cap_highcontext && b->cap_lowcontext <= a->cap_highcontext &&
           a->cap_lownode <= b->cap_highnode && b->cap_lownode <= a->cap_highnode;
}

/* Parses the bytes of the structure in hexadecimal, last byte first. */
EMU4_EXPORT int elan_getenvCap(ELAN_CAPABILITY *cap, int index)
{
    char name[40];
    unsigned char *bytes = (unsigned char *)cap;

    if (emu4_call(EMU4_CALL_elan_getenvCap))
        return -1;
    snprintf(name, sizeof(name), "LIBELAN_ECAP%d", index);
    const char *text = getenv(name);
    if (!text || strlen(text) != 2 * sizeof(*cap) ||
        strspn(text, "0123456789abcdefABCDEF") != 2 * sizeof(*cap)) {
        errno = text ? EINVAL : ENOENT;
        return -1;
    }
    for (size_t i = 0; i < sizeof(*cap); i++) {
        char two[3] = {text[2 * i], text[2 * i + 1], 0};
        bytes[sizeof(*cap) - 1 - i] = (unsigned char)strtoul(two, NULL, 16);
    }
    return 0;
}

/* Created capabilities are files in the rendezvous folder, named by key and range. */
static int cap_path(const ELAN_CAPABILITY *cap, char *path, size_t size)
{
    char name[160];
    const unsigned *k = cap->cap_userkey.key_values;

    snprintf(name, sizeof(name), "cap-%08x%08x%08x%08x-%d-%d-%d-%d", k[0], k[1], k[2], k[3],
             cap->cap_lowcontext, cap->cap_highcontext, cap->cap_lownode, cap->cap_highnode);
    return emu4_path(path, size, name);
}

static bool same(const ELAN_CAPABILITY *a, const ELAN_CAPABILITY *b)
{
    ELAN_CAPABILITY x = *a;

    x.cap_mycontext = b->cap_mycontext;
    if (x.cap_type & ELAN_CAP_TYPE_NO_BITMAP)
        memcpy(x.cap_bitmap, b->cap_bitmap, sizeof(x.cap_bitmap));
    return memcmp(&x, b, sizeof(x)) == 0;
}

bool emu4_cap_created(const ELAN_CAPABILITY *cap)
{
    char path[400];
    ELAN_CAPABILITY made;

    if (cap_path(cap, path, sizeof(path)) < 0)
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    bool ok = read(fd, &made, sizeof(made)) == sizeof(made) && same(&made, cap);
    close(fd);
    return ok;
}

EMU4_EXPORT int elanctrl_open(ELANCTRL_HANDLE *handle)
{
    char path[300];

    if (emu4_call(EMU4_CALL_elanctrl_open) || emu4_path(path, sizeof(path), ".") < 0)
        return -1;
    *handle = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *handle < 0 ? -1 : 0;
}

EMU4_EXPORT int elanctrl_close(ELANCTRL_HANDLE handle)
{
    return close(handle);
}

EMU4_EXPORT int elanctrl_create_cap(ELANCTRL_HANDLE handle, ELAN_CAPABILITY *cap)
{
    char path[400];

    (void)handle;
    if (emu4_call(EMU4_CALL_elanctrl_create_cap) || cap_path(cap, path, sizeof(path)) < 0)
        return -1;
    if (cap->cap_lowcontext < ELAN_RMS_BASE_CONTEXT_NUM ||
        cap->cap_highcontext > ELAN_RMS_TOP_CONTEXT_NUM) {
        errno = EINVAL;
        return -1;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return -1;
    bool ok = write(fd, cap, sizeof(*cap)) == sizeof(*cap);
    int err = errno;
    close(fd);
    if (ok)
        return 0;
    unlink(path);
    errno = err;
    return -1;
}

EMU4_EXPORT int elanctrl_destroy_cap(ELANCTRL_HANDLE handle, ELAN_CAPABILITY *cap)
{
    char path[400];

    (void)handle;
    if (emu4_call(EMU4_CALL_elanctrl_destroy_cap) || cap_path(cap, path, sizeof(path)) < 0)
        return -1;
    if (!emu4_cap_created(cap)) {
        errno = ENOENT;
        return -1;
    }
    return unlink(path);
}

EMU4_EXPORT int elanctrl_get_position(ELANCTRL_HANDLE handle, int rail, ELAN_POSITION *position)
{
    const struct emu4_knobs *k = emu4_knobs();

    (void)handle;
    if (emu4_call(EMU4_CALL_elanctrl_get_position))
        return -1;
    if (rail != 0) {
        errno = ENODEV;
        return -1;
    }
    *position = (ELAN_POSITION){.pos_mode = ELAN_POS_MODE_SWITCHED,
                                .pos_nodeid = (unsigned)emu4_knobs_node(),
                                .pos_levels = 1,
                                .pos_nodes = (unsigned)k->nodes};
    return 0;
}
