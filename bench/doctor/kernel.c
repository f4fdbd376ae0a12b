/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Devices of the kernel, beside those that the libraries could open; see doctor.h. */
#define _GNU_SOURCE /* basename */
#include "bench/doctor/doctor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLASS        "/sys/class/infiniband"
#define VERBS        "/sys/class/infiniband_verbs"
#define PCI          "/sys/bus/pci/devices"
#define NVIDIA       0x15b3u
#define CLASS_IB     0x0207u /* controllers; 0x0c06 in older adapters */
#define CLASS_IB_OLD 0x0c06u

bool doctor_line_of(char *text, size_t size, const char *folder, const char *entry,
                    const char *name)
{
    char path[512];
    FILE *file;
    bool got;

    if (snprintf(path, sizeof path, "%s/%s/%s", folder, entry, name) >= (int)sizeof path)
        return false;
    file = fopen(path, "re");
    got = file != NULL && fgets(text, (int)size, file) != NULL;
    if (file != NULL)
        fclose(file);
    if (got)
        text[strcspn(text, "\n")] = 0;
    return got;
}

/* ---- Device files ---- */

/* Returns 0 if a file can be opened, else the errno. */
static int try_open(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

/* Returns the remedy for a device file that cannot be opened; `modules`: if it is not there. */
static const char *remedy_of(int error, const char *modules)
{
    switch (error) {
    case ENOENT:
        return modules;
    case EACCES:
        return "give this user access to /dev/infiniband: a group of a udev rule, chmod 666, "
               "or User= of the unit";
    case EPERM:
        return "the device cgroup forbids the file: docker run --device=/dev/infiniband, or "
               "DeviceAllow=char-infiniband_verbs and char-rdma_cm in the unit";
    default:
        return "check the driver's lines in dmesg";
    }
}

static void check_cm(struct doctor *doctor)
{
    static const char path[] = "/dev/infiniband/rdma_cm";
    int error = try_open(path);

    if (!error)
        doctor_row(doctor, DOCTOR_PASS, NULL, "modules", "%s can be opened", path);
    else
        doctor_row(doctor, DOCTOR_FAIL,
                   remedy_of(error, "modprobe rdma_ucm ib_uverbs; in a container: docker run "
                                    "--device=/dev/infiniband"),
                   "modules", "%s: %s", path, strerror(error));
}

/* ---- RDMA devices that could not be opened ---- */

/* Finds the device file of a device.  Returns false if there is none in sysfs. */
static bool file_of(const char *name, char *path, size_t size)
{
    DIR *folder = opendir(VERBS);
    const struct dirent *entry;
    bool found = false;

    while (folder != NULL && !found && (entry = readdir(folder)) != NULL) {
        char of[64];

        found = entry->d_name[0] != '.' &&
                doctor_line_of(of, sizeof of, VERBS, entry->d_name, "ibdev") &&
                !strcmp(of, name) &&
                snprintf(path, size, "/dev/infiniband/%s", entry->d_name) < (int)size;
    }
    if (folder != NULL)
        closedir(folder);
    return found;
}

static void explain(struct doctor *doctor, const char *name)
{
    char path[300];
    int error;

    if (!file_of(name, path, sizeof path)) {
        doctor_row(doctor, DOCTOR_FAIL, "modprobe ib_uverbs", name,
                   "the kernel has the device, programs cannot reach it: ib_uverbs is not "
                   "loaded");
        return;
    }
    error = try_open(path);
    if (error)
        doctor_row(doctor, DOCTOR_FAIL,
                   remedy_of(error, "in a container: docker run --device=/dev/infiniband; "
                                    "else check udev"),
                   name, "%s: %s", path, strerror(error));
    else
        doctor_row(doctor, DOCTOR_FAIL,
                   "install the adapter's library: ibverbs-providers on Debian, rdma-core on "
                   "RHEL, in a container inside of it",
                   name, "the kernel has the device, libibverbs could not open it");
}

static bool is_known(const char *name, char *const *known, int count)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(name, known[i]))
            return true;
    return false;
}

/* Explains devices without a context.  Returns the number of devices. */
static unsigned check_devices(struct doctor *doctor, char *const *known, int count)
{
    DIR *folder = opendir(CLASS);
    const struct dirent *entry;
    unsigned number = 0;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        number++;
        if (!is_known(entry->d_name, known, count))
            explain(doctor, entry->d_name);
    }
    if (folder != NULL)
        closedir(folder);
    return number;
}

/* ---- Adapters without an RDMA device ---- */

/* Modules that make RDMA devices of the adapters of a driver. */
static const char *module_of(const char *driver)
{
    static const char *const modules[][2] = {
        {"mlx5_core", "mlx5_ib"}, {"mlx4_core", "mlx4_ib"}, {"bnxt_en", "bnxt_re"},
        {"qede", "qedr"},         {"ice", "irdma"},         {"hns3", "hns_roce_hw_v2"}};

    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (!strcmp(driver, modules[i][0]))
            return modules[i][1];
    return NULL;
}

static void check_adapter(struct doctor *doctor, const char *slot)
{
    char text[64], path[512], link[512] = "", remedy[96];
    unsigned kind = 0, vendor = 0;
    const char *driver, *module;

    if (doctor_line_of(text, sizeof text, PCI, slot, "class"))
        kind = (unsigned)strtoul(text, NULL, 16) >> 8;
    if (doctor_line_of(text, sizeof text, PCI, slot, "vendor"))
        vendor = (unsigned)strtoul(text, NULL, 16);
    snprintf(path, sizeof path, PCI "/%s/driver", slot);
    driver = readlink(path, link, sizeof link - 1) > 0 ? basename(link) : NULL;
    module = driver != NULL ? module_of(driver) : NULL;
    if (module == NULL && kind != CLASS_IB && kind != CLASS_IB_OLD && vendor != NVIDIA)
        return;
    if (driver == NULL)
        snprintf(remedy, sizeof remedy, "%s",
                 vendor == NVIDIA
                     ? "modprobe mlx5_core mlx5_ib; of ConnectX-3: mlx4_core mlx4_ib"
                     : "load the adapter's driver");
    else if (module != NULL)
        snprintf(remedy, sizeof remedy, "modprobe %s", module);
    else
        snprintf(remedy, sizeof remedy, "check the lines of %.32s in dmesg", driver);
    doctor_row(doctor, DOCTOR_FAIL, remedy, slot,
               "an adapter, driver %s, without an RDMA device",
               driver != NULL ? driver : "none");
}

static void check_slots(struct doctor *doctor)
{
    DIR *folder = opendir(PCI);
    const struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.')
            check_adapter(doctor, entry->d_name);
    if (folder != NULL)
        closedir(folder);
}

void doctor_kernel(struct doctor *doctor, char *const *known, int count)
{
    unsigned before;

    check_cm(doctor);
    if (check_devices(doctor, known, count))
        return;
    before = doctor->rows[DOCTOR_FAIL];
    check_slots(doctor);
    doctor_row(doctor, DOCTOR_FAIL,
               doctor->rows[DOCTOR_FAIL] > before
                   ? "see the rows of the adapters"
                   : "load the adapter's driver; without an adapter use rdma_rxe, or run under "
                     "emuverbs",
               "devices", "no RDMA device%s",
               doctor->locked ? "; the kernel is locked down, and refuses modules without a "
                                "signature"
                              : "");
}
