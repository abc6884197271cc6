/* Moves the directory VANISH_FROM to VANISH_TO before a file or directory is opened whose path ends
 * with VANISH_AT: once, while there is a file VANISH_IF, which is removed then. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int ends_with(const char *path, const char *end) {
    size_t length = strlen(path), wanted = strlen(end);
    return length >= wanted && strcmp(path + length - wanted, end) == 0;
}

static void may_vanish(const char *path) {
    const char *at = getenv("VANISH_AT"), *condition = getenv("VANISH_IF");
    const char *from = getenv("VANISH_FROM"), *to = getenv("VANISH_TO");
    if (at && condition && from && to && ends_with(path, at) && unlink(condition) == 0) {
        rename(from, to);
    }
}

DIR *opendir(const char *path) {
    static DIR *(*next)(const char *);
    if (!next) next = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
    may_vanish(path);
    return next(path);
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
    may_vanish(path);
    return next(path, flags, mode);
}
