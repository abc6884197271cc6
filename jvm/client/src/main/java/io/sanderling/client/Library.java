package io.sanderling.client;

import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.net.URLConnection;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Locale;
import java.util.Properties;

/** Loads the native half of the client, once. */
final class Library {
    /** Names a library to load instead of the jar's own. */
    static final String PATH_PROPERTY = "sanderling.native.path";

    private static final String FILE = "libsanderling_jni.so";

    private static boolean isLoaded;
    private static String failed;

    private Library() {}

    /** Loads it if that has not been done; what failed once fails again with the same words. */
    static synchronized void load() throws NativeLibraryException {
        if (isLoaded) {
            return;
        }
        if (failed != null) {
            throw new NativeLibraryException(failed, null);
        }
        try {
            String path = System.getProperty(PATH_PROPERTY);
            if (path != null) {
                loadFile(Paths.get(path).toAbsolutePath(), "correct -D" + PATH_PROPERTY);
            } else {
                loadOwn(system());
            }
            check(version());
            isLoaded = true;
        } catch (NativeLibraryException error) {
            failed = error.getMessage();
            throw error;
        }
    }

    /** Returns the operating system and processor as the jar names them, such as linux-x86_64. */
    static String system() {
        String name = System.getProperty("os.name", "").toLowerCase(Locale.ROOT);
        String processor = System.getProperty("os.arch", "").toLowerCase(Locale.ROOT);
        return name.replace(' ', '-') + "-" + (processor.equals("amd64") ? "x86_64" : processor);
    }

    private static void loadOwn(String system) throws NativeLibraryException {
        URL library = Library.class.getResource("/native/" + system + "/" + FILE);
        if (library == null) {
            throw new NativeLibraryException(
                    "the jar of sanderling-client has no native library for " + system
                            + ": build bindings/jni there and set -D" + PATH_PROPERTY
                            + " to its " + FILE,
                    null);
        }
        String next = "set -Djava.io.tmpdir to a directory that may hold programs, or -D"
                + PATH_PROPERTY + " to an unpacked " + FILE;
        Path file;
        try {
            file = unpacked(library);
        } catch (IOException error) {
            String text = "the native library of sanderling-client cannot be unpacked into "
                    + System.getProperty("java.io.tmpdir") + " (" + error + "): " + next;
            throw new NativeLibraryException(text, error);
        }
        loadFile(file, next);
    }

    private static void loadFile(Path file, String next) throws NativeLibraryException {
        try {
            loadOnce(file);
        } catch (UnsatisfiedLinkError error) {
            String why = error.getMessage();
            boolean isForbidden = why != null
                    && (why.contains("failed to map segment") || why.contains("not permitted"));
            String more = isForbidden ? ", perhaps because its file system is mounted noexec" : "";
            throw new NativeLibraryException(
                    "the native library of sanderling-client cannot be loaded from " + file + more
                            + " (" + why + "): " + next,
                    error);
        }
    }

    /** Loads a file; a copy of it where another class loader of this JVM has loaded it. */
    private static void loadOnce(Path file) throws NativeLibraryException {
        try {
            System.load(file.toString());
        } catch (UnsatisfiedLinkError error) {
            // The JVM has no type for this case: only the message distinguishes it.
            if (error.getMessage() == null
                    || !error.getMessage().contains("already loaded in another classloader")) {
                throw error;
            }
            try {
                Path directory = Files.createTempDirectory("sanderling-");
                Path copy = directory.resolve(FILE);
                Files.copy(file, copy);
                System.load(copy.toString());
                // Loaded, it needs no name.
                Files.delete(copy);
                Files.delete(directory);
            } catch (IOException cause) {
                throw new NativeLibraryException(
                        "the native library of sanderling-client is in use by another class loader"
                                + " and cannot be copied (" + cause + "): make room in "
                                + System.getProperty("java.io.tmpdir"),
                        cause);
            }
        }
    }

    /** Unpacks the library under the name of its contents, unless that has been done. */
    private static Path unpacked(URL library) throws IOException {
        String user = System.getProperty("user.name", "user").replaceAll("[^A-Za-z0-9._-]", "_");
        Path temporary = Paths.get(System.getProperty("java.io.tmpdir"));
        Path directory = owned(temporary.resolve("sanderling-native-" + user));
        String digest = digest(opened(library));
        Path file = directory.resolve(digest.substring(0, 32) + "-" + FILE);
        if (Files.isRegularFile(file) && digest(Files.newInputStream(file)).equals(digest)) {
            return file;
        }
        Path unnamed = Files.createTempFile(directory, "unpacking-", ".so");
        try (InputStream stream = opened(library)) {
            Files.copy(stream, unnamed, StandardCopyOption.REPLACE_EXISTING);
        }
        Files.setPosixFilePermissions(unnamed, PosixFilePermissions.fromString("r-x------"));
        Files.move(
                unnamed, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        return file;
    }

    /** Returns a directory of this user: that one, or a new one when it is another user's. */
    private static Path owned(Path directory) throws IOException {
        try {
            Files.createDirectory(
                    directory,
                    PosixFilePermissions.asFileAttribute(
                            PosixFilePermissions.fromString("rwx------")));
            return directory;
        } catch (java.nio.file.FileAlreadyExistsException exists) {
            Path own = Files.createTempDirectory("sanderling-native-");
            boolean isOurs = Files.isDirectory(directory, java.nio.file.LinkOption.NOFOLLOW_LINKS)
                    && Files.getOwner(directory).equals(Files.getOwner(own))
                    && PosixFilePermissions.toString(Files.getPosixFilePermissions(directory))
                            .equals("rwx------");
            if (isOurs) {
                Files.delete(own);
                return directory;
            }
            return own;
        }
    }

    private static String version() throws NativeLibraryException {
        try {
            return Native.initialize(Failure.class);
        } catch (UnsatisfiedLinkError error) {
            return "another, older one";
        }
    }

    private static void check(String version) throws NativeLibraryException {
        Properties build = new Properties();
        URL properties = Library.class.getResource("build.properties");
        if (properties != null) {
            try (InputStream stream = opened(properties)) {
                build.load(stream);
            } catch (IOException error) {
                // Then its version is not known.
                build.clear();
            }
        }
        String own = build.getProperty("version", "unknown");
        if (!own.equals(version)) {
            throw new NativeLibraryException(
                    "the jar of sanderling-client is version " + own + " and its native library "
                            + version + ": use those of one build",
                    null);
        }
    }

    /** Opens a resource without a cache, which would keep the jar open. */
    private static InputStream opened(URL url) throws IOException {
        URLConnection connection = url.openConnection();
        connection.setUseCaches(false);
        return connection.getInputStream();
    }

    /** Returns the SHA-256 of a stream and closes it. A small heap has no room for the library. */
    private static String digest(InputStream stream) throws IOException {
        MessageDigest digest;
        try {
            digest = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException("every JVM has SHA-256", impossible);
        }
        try (InputStream read = stream) {
            byte[] part = new byte[1 << 16];
            for (int count = read.read(part); count >= 0; count = read.read(part)) {
                digest.update(part, 0, count);
            }
        }
        StringBuilder text = new StringBuilder();
        for (byte each : digest.digest()) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }
}
