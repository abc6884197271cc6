/* Files that fail, for processes that are started with this library before their own.
 *
 * FAULTY_SWITCH names the file that says how: it is mapped, so a change of it counts at once. The
 * files are those below the directory FAULTY_DIRECTORY, or those whose names begin with
 * FAULTY_BEGIN; with both variables, those that are both. FAULTY_SYNCED names a directory that
 * gets, per inode, how long a file below FAULTY_DIRECTORY was when its last successful sync began:
 * what a crash of the machine may not take. */
#include "faults.h"
#include <sys/stat.h>
#include <sys/uio.h>

struct faults {
    uint8_t on_write; /* an error number, or 0 */
    uint8_t on_sync;
    uint8_t on_read;
    uint8_t left;  /* how many calls fail; 255 for all */
    uint8_t waits; /* whether writes wait */
    uint8_t sync_waits; /* whether syncs wait */
    uint16_t write_millis;
    uint16_t sync_millis;
};

static volatile struct faults *faults;
static const char *directory, *begin, *synced;

__attribute__((constructor)) static void start(void) {
    directory = getenv("FAULTY_DIRECTORY");
    begin = getenv("FAULTY_BEGIN");
    synced = getenv("FAULTY_SYNCED");
    if (!directory && !begin) return;
    faults = mapped("FAULTY_SWITCH", sizeof(struct faults), PROT_READ | PROT_WRITE);
}

static int is_ours(int file) {
    char path[4096];
    if (!path_of(file, path, sizeof path)) return 0;
    size_t prefix = directory ? strlen(directory) : 0;
    if (directory && (strncmp(path, directory, prefix) || path[prefix] != '/')) return 0;
    const char *last = strrchr(path, '/');
    return !begin || (last && !strncmp(last + 1, begin, strlen(begin)));
}

/* Returns whether the call fails. */
static int fails(int file, volatile uint8_t *error, unsigned millis) {
    if ((!*error && !millis) || !is_ours(file)) return 0;
    if (millis) wait_millis(millis);
    uint8_t number = *error;
    if (!number || !faults->left) return 0;
    if (faults->left != 255) faults->left--;
    errno = number;
    return 1;
}

static int write_fails(int file) {
    if (!faults) return 0;
    if (faults->waits && is_ours(file)) {
        while (faults->waits) wait_millis(10);
    }
    return fails(file, &faults->on_write, faults->write_millis);
}

static int read_fails(int file) {
    return faults && fails(file, &faults->on_read, 0);
}

#define ON(kind, name, parameters, arguments) \
    ssize_t name parameters { \
        REAL(name); \
        return kind##_fails(file) ? -1 : real arguments; \
    }

ON(write, write, (int file, const void *from, size_t bytes), (file, from, bytes))
ON(write, pwrite, (int file, const void *from, size_t bytes, off_t at), (file, from, bytes, at))
ON(write, pwrite64, (int file, const void *from, size_t bytes, off64_t at), (file, from, bytes, at))
ON(write, writev, (int file, const struct iovec *from, int count), (file, from, count))
ON(write, pwritev, (int file, const struct iovec *from, int count, off_t at),
   (file, from, count, at))
ON(read, pread, (int file, void *to, size_t bytes, off_t at), (file, to, bytes, at))
ON(read, pread64, (int file, void *to, size_t bytes, off64_t at), (file, to, bytes, at))

/* Notes how much of a file the disk has. */
static void note(struct stat about) {
    /* This file has no faults. */
    REAL(pwrite);
    char name[4096];
    uint64_t length = about.st_size;
    snprintf(name, sizeof name, "%s/%llu", synced, (unsigned long long)about.st_ino);
    int file = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (real(file, &length, sizeof length, 0) < 0) unlink(name);
    close(file);
}

static int sync_with(int file, int (*real)(int)) {
    struct stat before;
    int is_file = synced && directory && !fstat(file, &before) && S_ISREG(before.st_mode);
    int is_kept = is_file && is_ours(file);
    if (faults && faults->sync_waits && is_ours(file)) {
        while (faults->sync_waits) wait_millis(10);
    }
    if (faults && fails(file, &faults->on_sync, faults->sync_millis)) return -1;
    int done = real(file);
    if (!done && is_kept) note(before);
    return done;
}

int fsync(int file) {
    REAL(fsync);
    return sync_with(file, real);
}

int fdatasync(int file) {
    REAL(fdatasync);
    return sync_with(file, real);
}
