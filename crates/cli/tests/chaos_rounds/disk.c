/* Faults of a disk, for processes that are started with this library before their own.
 *
 * CHAOS_DISK names the directory whose files fail, CHAOS_FAULTS the file that says how: it is
 * mapped, so that whoever writes into it switches a fault at once. CHAOS_SYNCED names a directory
 * that gets, per inode, how long the file was when its last successful sync began: what a crash of
 * the machine may not take. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct faults {
    uint8_t on_write; /* an error number, or 0 */
    uint8_t on_sync;
    uint8_t on_read;
    uint8_t unused;
    uint16_t write_millis;
    uint16_t sync_millis;
};

static volatile struct faults *faults;
static const char *disk, *synced;

__attribute__((constructor)) static void start(void) {
    const char *control = getenv("CHAOS_FAULTS");
    disk = getenv("CHAOS_DISK");
    synced = getenv("CHAOS_SYNCED");
    if (!control || !disk) return;
    int file = open(control, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void *map = mmap(NULL, sizeof(struct faults), PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) faults = map;
    close(file);
}

static int is_ours(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    size_t prefix = strlen(disk);
    return !strncmp(path, disk, prefix) && path[prefix] == '/';
}

static void wait_millis(unsigned millis) {
    struct timespec time = {millis / 1000, (millis % 1000) * 1000000L};
    while (nanosleep(&time, &time) && errno == EINTR) {
    }
}

/* Returns whether the call fails. */
static int fails(int file, volatile uint8_t *error, volatile uint16_t *millis) {
    if (!faults || (!*error && !(millis && *millis)) || !is_ours(file)) return 0;
    if (millis && *millis) wait_millis(*millis);
    if (!*error) return 0;
    errno = *error;
    return 1;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define ON(kind, name, result, parameters, arguments) \
    result name parameters { \
        REAL(name); \
        if (fails(file, &faults->on_##kind, KIND_##kind)) return -1; \
        return real arguments; \
    }
#define KIND_write &faults->write_millis
#define KIND_read NULL

ON(write, write, ssize_t, (int file, const void *from, size_t bytes), (file, from, bytes))
ON(write, pwrite, ssize_t, (int file, const void *from, size_t bytes, off_t at),
   (file, from, bytes, at))
ON(write, pwrite64, ssize_t, (int file, const void *from, size_t bytes, off64_t at),
   (file, from, bytes, at))
ON(write, writev, ssize_t, (int file, const struct iovec *from, int count), (file, from, count))
ON(write, pwritev, ssize_t, (int file, const struct iovec *from, int count, off_t at),
   (file, from, count, at))
ON(read, pread, ssize_t, (int file, void *to, size_t bytes, off_t at), (file, to, bytes, at))
ON(read, pread64, ssize_t, (int file, void *to, size_t bytes, off64_t at), (file, to, bytes, at))

typedef ssize_t put_at(int, const void *, size_t, off_t);

/* Notes how much of a file the disk has. */
static void note(struct stat about) {
    char name[4096];
    uint64_t length = about.st_size;
    snprintf(name, sizeof name, "%s/%llu", synced, (unsigned long long)about.st_ino);
    int file = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return;
    /* The real one: this file has no faults. */
    put_at *put = (put_at *)dlsym(RTLD_NEXT, "pwrite");
    if (put(file, &length, sizeof length, 0) < 0) unlink(name);
    close(file);
}

static int sync_with(int file, int (*real)(int)) {
    struct stat before;
    int is_file = synced && disk && !fstat(file, &before) && S_ISREG(before.st_mode);
    int is_kept = is_file && is_ours(file);
    if (faults && fails(file, &faults->on_sync, &faults->sync_millis)) return -1;
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
