/* Stops a process that is started with this library, as SIGSTOP does: once, after it has removed
 * the file whose path ends with STOP_AFTER. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static int ends_with(const char *path, const char *end) {
    size_t length = strlen(path), wanted = strlen(end);
    return length >= wanted && strcmp(path + length - wanted, end) == 0;
}

int unlink(const char *path) {
    static int (*next)(const char *);
    static int is_stopped;
    if (!next) next = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    int failed = next(path);
    const char *end = getenv("STOP_AFTER");
    if (!failed && end && ends_with(path, end) && !__sync_lock_test_and_set(&is_stopped, 1)) {
        raise(SIGSTOP);
    }
    return failed;
}
