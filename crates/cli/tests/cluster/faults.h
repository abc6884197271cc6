/* What the libraries share that processes are started with before the C library: each lets some of
 * its calls fail, wait, or return something else. `tasks::library` puts this beside each source. */
#define _GNU_SOURCE
/* With it, the headers would define some of the calls themselves. */
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Declares `real`: the call of that name behind the library's own, which is `own`. */
#define REAL_AS(own, name) \
    static __typeof__(own) *real; \
    if (!real) real = (__typeof__(own) *)dlsym(RTLD_NEXT, name)
#define REAL(own) REAL_AS(own, #own)

/* Defines `open64`, which calls `before` with the path and the flags first. What that returns is
 * the number of the error, or 0 to open the file. */
#define ON_OPEN64(before) \
    int open64(const char *path, int flags, ...) { \
        REAL(open64); \
        mode_t mode = 0; \
        if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) { \
            va_list rest; \
            va_start(rest, flags); \
            mode = va_arg(rest, mode_t); \
            va_end(rest); \
        } \
        int number = before(path, flags); \
        if (number) { \
            errno = number; \
            return -1; \
        } \
        return real(path, flags, mode); \
    }

static int ends_with(const char *path, const char *end) {
    size_t length = strlen(path), wanted = strlen(end);
    return length >= wanted && strcmp(path + length - wanted, end) == 0;
}

/* Writes the path of an open file, and returns whether it has one. */
static int path_of(int file, char *path, size_t bytes) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, bytes - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

static void wait_millis(long millis) {
    struct timespec left = {millis / 1000, (millis % 1000) * 1000000L};
    while (nanosleep(&left, &left) && errno == EINTR) {
    }
}

/* Maps the file that a variable names, so that a change of it counts at once. Returns NULL if there
 * is none. */
static void *mapped(const char *variable, size_t bytes, int protection) {
    const char *name = getenv(variable);
    int flags = (protection & PROT_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC;
    int file = name ? open(name, flags) : -1;
    if (file < 0) return NULL;
    void *map = mmap(NULL, bytes, protection, MAP_SHARED, file, 0);
    close(file);
    return map == MAP_FAILED ? NULL : map;
}
