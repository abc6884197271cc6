package io.sanderling.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Loads the native library where it cannot be loaded: one sentence with what to do. */
final class LibraryTest {
    @TempDir
    private Path directory;

    /** Loads the library in a JVM of its own, and prints the error if there is one. */
    static final class Probe {
        public static void main(String[] arguments) throws Exception {
            try {
                Library.load();
                System.out.print("loaded");
            } catch (NativeLibraryException error) {
                System.out.print(error.name() + ": " + error.getMessage());
            }
        }
    }

    private String probe(String... options) throws Exception {
        return probe(new ArrayList<>(), options);
    }

    private String probe(List<String> command, String... options) throws Exception {
        command.add(Paths.get(System.getProperty("java.home"), "bin", "java").toString());
        command.add("-Xmx64m");
        command.addAll(Arrays.asList(options));
        if (Stream.of(options).noneMatch(option -> option.equals("-cp"))) {
            command.add("-cp");
            command.add(System.getProperty("java.class.path"));
        }
        command.add(Probe.class.getName());
        // The JVM has its own opinion of a broken library, on stderr.
        Process process = new ProcessBuilder(command)
                .redirectError(directory.resolve("stderr").toFile()).start();
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        try (InputStream stream = process.getInputStream()) {
            for (int one = stream.read(); one >= 0; one = stream.read()) {
                printed.write(one);
            }
        }
        assertTrue(process.waitFor(LocalCluster.DEADLINE_SECONDS, TimeUnit.SECONDS));
        String text = new String(printed.toByteArray(), StandardCharsets.UTF_8);
        assertFalse(text.contains("\n"), text);
        return text;
    }

    @Test
    void unpackedLibraryIsPrivateAndUsedAgain() throws Exception {
        String temporary = "-Djava.io.tmpdir=" + directory;
        assertEquals("loaded", probe(temporary));
        List<Path> files = files();
        assertEquals(1, files.size(), files.toString());
        Path own = files.get(0);
        assertEquals("rwx------", permissions(own.getParent()));
        assertEquals("r-x------", permissions(own));
        Object time = Files.getLastModifiedTime(own);
        assertEquals("loaded", probe(temporary));
        assertEquals(time, Files.getLastModifiedTime(own));
        // What another program has changed is not loaded.
        Files.setPosixFilePermissions(own, PosixFilePermissions.fromString("rwx------"));
        Files.write(own, "not a library".getBytes(StandardCharsets.UTF_8));
        assertEquals("loaded", probe(temporary));
        assertEquals(files, files());
    }

    @Test
    void directoryThatOthersMayWriteIsNotUsed() throws Exception {
        Path others = directory.resolve("sanderling-native-" + System.getProperty("user.name"));
        Files.createDirectory(others);
        Files.setPosixFilePermissions(others, PosixFilePermissions.fromString("rwxrwxrwx"));
        assertEquals("loaded", probe("-Djava.io.tmpdir=" + directory));
        assertEquals(1, files().size());
        assertFalse(files().get(0).startsWith(others));
    }

    private List<Path> files() throws IOException {
        try (Stream<Path> all = Files.walk(directory)) {
            return all.filter(path -> path.toString().endsWith(".so")).collect(Collectors.toList());
        }
    }

    private static String permissions(Path path) throws IOException {
        return PosixFilePermissions.toString(Files.getPosixFilePermissions(path));
    }

    @Test
    void unknownSystemIsReported() throws Exception {
        String text = probe("-Dos.arch=riscv64");
        assertTrue(text.startsWith("NativeLibrary: "), text);
        assertTrue(text.contains("no native library for linux-riscv64"), text);
        assertTrue(text.contains("-Dsanderling.native.path"), text);
    }

    @Test
    void missingOrBrokenLibraryIsReported() throws Exception {
        String missing = probe("-Dsanderling.native.path=" + directory.resolve("none.so"));
        assertTrue(missing.contains("none.so"), missing);
        assertTrue(missing.contains("correct -Dsanderling.native.path"), missing);
        Path broken = directory.resolve("broken.so");
        Files.write(broken, "not a library".getBytes(StandardCharsets.UTF_8));
        String text = probe("-Dsanderling.native.path=" + broken);
        assertTrue(text.contains("broken.so"), text);
    }

    @Test
    void temporaryDirectoryThatIsNoneIsReported() throws Exception {
        String text = probe("-Djava.io.tmpdir=" + directory.resolve("none"));
        assertTrue(text.contains("cannot be unpacked into"), text);
        assertTrue(text.contains("set -Djava.io.tmpdir"), text);
    }

    @Test
    void temporaryDirectoryWithoutProgramsIsReported() throws Exception {
        Path inside = Files.createDirectory(directory.resolve("noexec"));
        String mount = "mount -t tmpfs -o noexec none " + inside;
        Process tried = new ProcessBuilder("unshare", "-m", "sh", "-c", mount)
                .redirectErrorStream(true).start();
        assertTrue(tried.waitFor(LocalCluster.DEADLINE_SECONDS, TimeUnit.SECONDS));
        Assumptions.assumeTrue(tried.exitValue() == 0, "nothing may be mounted here");
        String text = probe(
                new ArrayList<>(Arrays.asList(
                        "unshare", "-m", "sh", "-c", mount + " && exec \"$@\"", "sh")),
                "-Djava.io.tmpdir=" + inside);
        assertTrue(text.contains("mounted noexec"), text);
    }

    @Test
    void jarAndLibraryOfDifferentVersionsAreReported() throws Exception {
        Path properties = directory.resolve("io/sanderling/client/build.properties");
        Files.createDirectories(properties.getParent());
        Files.write(properties, "version=9.9.9\n".getBytes(StandardCharsets.UTF_8));
        String text = probe("-Djava.io.tmpdir=" + directory, "-cp",
                directory + File.pathSeparator + System.getProperty("java.class.path"));
        assertTrue(text.contains("is version 9.9.9 and its native library "), text);
    }

    @Test
    void twoClassLoadersOfOneJvmLoadIt() throws Exception {
        Library.load();
        List<URL> places = new ArrayList<>();
        for (String each : System.getProperty("java.class.path").split(File.pathSeparator)) {
            places.add(Paths.get(each).toUri().toURL());
        }
        URL[] urls = places.toArray(new URL[0]);
        try (LocalCluster cluster = LocalCluster.start(1);
                URLClassLoader loader = new URLClassLoader(urls, null)) {
            Class<?> options = loader.loadClass(ClientOptions.class.getName());
            Class<?> client = loader.loadClass(SanderlingClient.class.getName());
            Object create = options.getMethod("create").invoke(null);
            Object connected = client.getMethod("connect", String.class, options)
                    .invoke(null, cluster.namenode(), create);
            assertNotNull(client.getMethod("cluster").invoke(connected));
            try {
                client.getMethod("stat", String.class).invoke(connected, "/none");
            } catch (InvocationTargetException error) {
                // The exception is of that loader's own class.
                assertEquals(loader.loadClass(NotFoundException.class.getName()),
                        error.getCause().getClass());
            }
            client.getMethod("close").invoke(connected);
        }
    }
}
