/* Lets the first open for reading of a file whose path contains SLOW_BELOW take ten seconds. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int is_slow(const char *path, int flags) {
    static int is_over;
    const char *below = getenv("SLOW_BELOW");
    return below && strstr(path, below) && (flags & O_ACCMODE) == O_RDONLY &&
           !__sync_lock_test_and_set(&is_over, 1);
}

int open64(const char *path, int flags, ...) {
    static int (*next)(const char *, int, ...);
    if (!next) next = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    mode_t mode = 0;
    if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    if (is_slow(path, flags)) {
        struct timespec left = {10, 0};
        while (nanosleep(&left, &left) != 0) {
        }
    }
    return next(path, flags, mode);
}
