/* Lets each open of a file whose path contains FAIL_BELOW fail, as on a broken disk, while there is
 * a file FAIL_IF. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(const char *path) {
    const char *below = getenv("FAIL_BELOW"), *condition = getenv("FAIL_IF");
    return below && condition && strstr(path, below) && access(condition, F_OK) == 0;
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
    if (fails(path)) {
        errno = EIO;
        return -1;
    }
    return next(path, flags, mode);
}
