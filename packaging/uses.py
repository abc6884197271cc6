"""What uses the packages in dist_test.py: a script in the image, and small applications."""

# Runs servers and clients with nothing but the image, in its root, which is read-only but for its
# volumes, as its user. Names are resolved by the libraries in it.
IN_IMAGE = """
root=$1
state=$root/var/lib/sanderling
mount --bind $root $root
mount -o remount,bind,ro $root
mount -t tmpfs -o mode=1777 tmpfs $root/tmp
mount -t tmpfs -o mode=0700,uid=65532,gid=65532 tmpfs $root/var/lib/sanderling
mount -t proc proc $root/proc
ip link set lo up
sanderling() { chroot --userspec=65532:65532 $root /usr/bin/sanderling "$@"; }
wait_for() { for _ in $(seq 600); do [ -e $state/$1 ] && return; sleep 0.1; done; exit 1; }
ready=/var/lib/sanderling/ready
sanderling namenode --dir /var/lib/sanderling/namenode --http none --ready-file $ready-1 &
wait_for ready-1
sanderling datanode --namenode elsewhere:7600 --http none --dram 64MiB --ready-file $ready-2 &
wait_for ready-2
sanderling --namenode elsewhere:7600 fs put /usr/bin/sanderling /program
sanderling --namenode elsewhere:7600 fs get /program /var/lib/sanderling/back
cmp $root/usr/bin/sanderling $state/back
! touch $root/etc/written 2> $state/refused
echo the bytes came back
"""
JAVA = """
import io.sanderling.client.*;
import java.net.URI;
import java.nio.ByteBuffer;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

public class Use {
    public static void main(String[] words) throws Exception {
        try (SanderlingClient client =
                SanderlingClient.connect(words[0], ClientOptions.create())) {
            client.put("/jar", ByteBuffer.wrap(new byte[4 << 20]),
                PutOptions.create().withReplace(true));
            try (Buffer buffer = client.get("/jar")) {
                System.out.println(buffer.bytes().remaining() + " bytes read by the client");
            }
        }
        try (FileSystem files = FileSystem.get(
                URI.create("sanderling://" + words[0]), new Configuration())) {
            System.out.println(
                files.getFileStatus(new Path("/jar")).getLen() + " bytes listed by Hadoop");
        }
    }
}
"""
SPARK = """
import sys
from pyspark.sql import SparkSession
jar, address = sys.argv[1:]
manager = "org.apache.spark.shuffle.sanderling.SanderlingShuffleManager"
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")
    .config("spark.driver.extraClassPath", jar).config("spark.executor.extraClassPath", jar)
    .config("spark.shuffle.manager", manager).config("spark.sanderling.address", address)
    .config("spark.sql.shuffle.partitions", "4").getOrCreate()
)
groups = spark.range(10000).selectExpr("id % 97 AS key").groupBy("key").count().collect()
used = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get().shuffleManager()
print(len(groups), "groups of", sum(row["count"] for row in groups), "rows by",
      used.getClass().getSimpleName())
spark.stop()
"""
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>application</groupId>
  <artifactId>application</artifactId>
  <version>1</version>
  <properties>
    <!-- The compiler plugin of Maven 3.8 and older reads these two, later ones the release. -->
    <maven.compiler.source>8</maven.compiler.source>
    <maven.compiler.target>8</maven.compiler.target>
    <maven.compiler.release>8</maven.compiler.release>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <repositories>
    <repository>
      <id>dist</id>
      <url>file://{maven}</url>
    </repository>
  </repositories>
  <dependencies>
    <dependency>
      <groupId>io.sanderling</groupId>
      <artifactId>sanderling-client</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>io.sanderling</groupId>
      <artifactId>sanderling-hadoop</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.hadoop</groupId>
      <artifactId>hadoop-client-api</artifactId>
      <version>3.5.0</version>
    </dependency>
    <dependency>
      <groupId>org.apache.hadoop</groupId>
      <artifactId>hadoop-client-runtime</artifactId>
      <version>3.5.0</version>
    </dependency>
  </dependencies>
</project>
"""
