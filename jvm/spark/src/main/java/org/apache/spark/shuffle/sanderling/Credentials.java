package org.apache.spark.shuffle.sanderling;

import io.sanderling.client.ClientOptions;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/** Keeps what an executor shows and believes in files of its own, for as long as it runs. */
final class Credentials implements AutoCloseable {
    private final Path directory;
    private final Path token;
    private final Path authorities;

    Credentials(Application application) throws IOException {
        boolean isNeeded = !application.token.isEmpty() || application.authorities.length > 0;
        // Made with access for this user alone.
        directory = isNeeded ? Files.createTempDirectory("sanderling-") : null;
        token = application.token.isEmpty() ? null : directory.resolve("token");
        authorities = application.authorities.length == 0 ? null : directory.resolve("ca.pem");
        if (authorities != null) {
            Files.write(authorities, application.authorities);
            authorities.toFile().deleteOnExit();
        }
        if (token != null) {
            renew(application);
            token.toFile().deleteOnExit();
        }
        if (directory != null) {
            directory.toFile().deleteOnExit();
        }
    }

    /** Returns the options with what there is to show. */
    ClientOptions of(ClientOptions options) {
        ClientOptions shown = options;
        if (token != null) {
            shown = shown.withTokenFile(token);
        }
        return authorities == null ? shown : shown.withCaFile(authorities);
    }

    /** Returns whether there is a token that ends some day. */
    boolean hasToken() {
        return token != null;
    }

    /** Replaces the token: the client reads it again for its next connection. */
    void renew(Application application) throws IOException {
        Path next = directory.resolve("token.next");
        Files.write(next, application.token.getBytes(StandardCharsets.UTF_8));
        Files.move(next, token, StandardCopyOption.ATOMIC_MOVE,
                StandardCopyOption.REPLACE_EXISTING);
    }

    /** Deletes the files; what cannot be deleted goes when the process ends. */
    @Override
    public void close() {
        for (Path path : new Path[] {token, authorities, directory}) {
            if (path != null) {
                path.toFile().delete();
            }
        }
    }
}
