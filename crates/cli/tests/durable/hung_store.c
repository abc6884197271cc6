/* A file system that does not answer while there is a file HUNG_IF: to the link by which an empty
 * store is claimed, and to the lock that one process has alone, with which a store is adopted.
 * While there is a file SLOW_IF, each part of an upload takes 14 s. While there is a file STUCK_IF,
 * a part of an upload gets no answer, and from then on neither does a look at the owner. */
#include "faults.h"
#include <sys/file.h>

static int is_there(const char *variable) {
    const char *condition = getenv(variable);
    return condition && access(condition, F_OK) == 0;
}

static void wait_while(const char *variable) {
    while (is_there(variable)) wait_millis(10);
}

int linkat(int from, const char *old, int to, const char *new, int flags) {
    REAL(linkat);
    if (ends_with(new, "/.sanderling/owner")) wait_while("HUNG_IF");
    return real(from, old, to, new, flags);
}

int flock(int file, int operation) {
    REAL(flock);
    if (operation & LOCK_EX) wait_while("HUNG_IF");
    return real(file, operation);
}

static int is_stuck;

int fdatasync(int file) {
    REAL(fdatasync);
    char path[4096];
    if (path_of(file, path, sizeof path) && strstr(path, "/.sanderling/uploads/")) {
        for (int waited = 0; waited < 14000 && is_there("SLOW_IF"); waited += 10) wait_millis(10);
        if (is_there("STUCK_IF")) __sync_lock_test_and_set(&is_stuck, 1);
        wait_while("STUCK_IF");
    }
    return real(file);
}

static int before_open(const char *path, int flags) {
    int is_look = (flags & O_ACCMODE) == O_RDONLY && ends_with(path, "/.sanderling/owner");
    if (is_look && __sync_fetch_and_add(&is_stuck, 0)) wait_while("STUCK_IF");
    return 0;
}

ON_OPEN64(before_open)
