package org.gradle.internal.installation;

import java.io.File;

/** Debian's Gradle looks for itself under /usr/share only; ours is unpacked elsewhere. Loaded before the class of the same name. */
public final class CurrentGradleInstallationLocator {
    private CurrentGradleInstallationLocator() {}

    public static synchronized CurrentGradleInstallation locate() {
        return new CurrentGradleInstallation(new GradleInstallation(new File(System.getProperty("russet.gradle.home"))));
    }
}
