package io.sanderling.hadoop;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;

/**
 * Serves {@code sanderling://} to {@link org.apache.hadoop.fs.FileContext}. Hadoop finds it by
 * {@code fs.AbstractFileSystem.sanderling.impl=io.sanderling.hadoop.Sanderling}.
 */
public final class Sanderling extends DelegateToFileSystem {
    /**
     * Connects as {@link SanderlingFileSystem#initialize} does.
     *
     * @throws IOException with one sentence when the configuration is wrong or no server answers
     */
    public Sanderling(URI uri, Configuration configuration)
            throws IOException, URISyntaxException {
        // Without an authority, Hadoop would drop the one that is there.
        super(uri, new SanderlingFileSystem(), configuration, SanderlingFileSystem.SCHEME,
                uri.getAuthority() != null);
    }

    @Override
    public boolean isValidName(String name) {
        // What Hadoop refuses by default, colons in a name, the store takes.
        for (String component : name.split("/")) {
            if (component.equals(".") || component.equals("..")) {
                return false;
            }
        }
        return true;
    }
}
