"""What runs an application: Java, the Spark session, its queries, and how they are watched."""
