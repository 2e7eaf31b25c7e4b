/* Makes the n-th file operation below runs/ fail or kill: build with `cc -shared -fPIC -o faulty.so faulty.c -ldl`, set
   LD_PRELOAD. Nothing happens before faulty_arm(n, error, count): error 0 kills, -1 only counts into the file `count`,
   one letter per operation; the errors that can happen are:

       o  opens, for reading     EMFILE EACCES EIO
       c  opens, and may create  EMFILE EACCES EIO ENOSPC
       p  changes a path         EACCES EIO ENOSPC
       w  writes                 EIO ENOSPC
       s  syncs or locks         EIO
       r  reads                  EIO

   ENOSPC is permanent, and the first write takes half of its bytes, as on a disk that fills up; other errors come once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long countdown, position, full;
static int error = -2, log_file = -1;
static char *mark = "/runs";

void faulty_arm(long operation, int kind, const char *count) {
    static int (*real_open)(const char *, int, ...);
    real_open = dlsym(RTLD_NEXT, "open");
    if (count[0]) log_file = real_open(count, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    countdown = operation;
    position = 0;
    full = 0;
    error = kind;
}

static int below(const char *path) {
    const char *found = strstr(path, mark);
    return found && (found[5] == '/' || found[5] == 0);
}

static int of_path(int directory, const char *path) {
    char base[PATH_MAX + 1], link[64], whole[2 * PATH_MAX + 2];
    int length = 0;
    if (sscanf(path, "/proc/self/fd/%d%n", &directory, &length) == 1) path += length; /* of an open directory */
    else if (path[0] == '/') return below(path);
    if (directory == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t size = readlink(link, base, PATH_MAX);
        if (size < 0) return 0;
        base[size] = 0;
    }
    snprintf(whole, sizeof whole, "%s/%s", base, path);
    return below(whole);
}

static int of_file(int file) { return file > 2 && file != log_file && of_path(file, ""); }

/* Whether this operation is to fail; sets errno. */
static int fails(char kind, int concerned) {
    static ssize_t (*real_write)(int, const void *, size_t);
    if (error == -2 || !concerned) return 0;
    if (!real_write) real_write = dlsym(RTLD_NEXT, "write");
    if (error == -1) {
        real_write(log_file, &kind, 1);
        return 0;
    }
    if (full && strchr("cpw", kind)) {
        errno = error;
        return 1;
    }
    if (position++ != countdown) return 0;
    if (!error) kill(getpid(), SIGKILL);
    full = error == ENOSPC;
    errno = error;
    return 1;
}

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = dlsym(RTLD_NEXT, #name);

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, name, const char *, int, ...) \
        va_list rest; \
        va_start(rest, flags); \
        int mode = flags & O_CREAT ? va_arg(rest, int) : 0; \
        va_end(rest); \
        return fails(flags & O_CREAT ? 'c' : 'o', of_path(AT_FDCWD, path)) ? -1 : real(path, flags, mode); \
    }
#define OPENAT(name) \
    int name(int directory, const char *path, int flags, ...) { \
        REAL(int, name, int, const char *, int, ...) \
        va_list rest; \
        va_start(rest, flags); \
        int mode = flags & O_CREAT ? va_arg(rest, int) : 0; \
        va_end(rest); \
        return fails(flags & O_CREAT ? 'c' : 'o', of_path(directory, path)) ? -1 : real(directory, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t)
    int before = full;
    if (!fails('w', of_file(file))) return real(file, data, size);
    if (full && !before && size > 1) return real(file, data, size / 2);
    return -1;
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t)
    return fails('w', of_file(file)) ? -1 : real(file, data, size, at);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int)
    return fails('w', of_file(file)) ? -1 : real(file, parts, count);
}
ssize_t read(int file, void *data, size_t size) {
    REAL(ssize_t, read, int, void *, size_t)
    return fails('r', of_file(file)) ? -1 : real(file, data, size);
}
ssize_t pread64(int file, void *data, size_t size, off64_t at) {
    REAL(ssize_t, pread64, int, void *, size_t, off64_t)
    return fails('r', of_file(file)) ? -1 : real(file, data, size, at);
}
int fsync(int file) {
    REAL(int, fsync, int)
    return fails('s', of_file(file)) ? -1 : real(file);
}
int flock(int file, int how) {
    REAL(int, flock, int, int)
    return fails('s', of_file(file)) ? -1 : real(file, how);
}
int ftruncate64(int file, off64_t size) {
    REAL(int, ftruncate64, int, off64_t)
    return fails('s', of_file(file)) ? -1 : real(file, size);
}
int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *)
    return fails('p', of_path(AT_FDCWD, from)) ? -1 : real(from, to);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t)
    return fails('p', of_path(AT_FDCWD, path)) ? -1 : real(path, mode);
}
int unlink(const char *path) {
    REAL(int, unlink, const char *)
    return fails('s', of_path(AT_FDCWD, path)) ? -1 : real(path);
}
int unlinkat(int directory, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int)
    return fails('s', of_path(directory, path)) ? -1 : real(directory, path, flags);
}
int rmdir(const char *path) {
    REAL(int, rmdir, const char *)
    return fails('s', of_path(AT_FDCWD, path)) ? -1 : real(path);
}
